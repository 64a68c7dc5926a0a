"""Seats the controller: makes its Decisions from live requests, keeps the books, and shows it what has ended.

What it sees is what a simulated or live run shows: the same prefix forest, the same index of what was sent where, the
same counts. So a request sequence has the same decisions here as in `kvgym run`.
"""

from __future__ import annotations

import dataclasses
from collections import OrderedDict, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from kvgym.config.signals import DEFAULT_SIGNALS
from kvgym.control import Controller
from kvgym.errors import SimulationError
from kvgym.forest.forest import Forest
from kvgym.knowledge.view import CacheKnowledge
from kvgym.proxy.reading import Asked
from kvgym.proxy.shadow import Shadow
from kvgym.types import RECORD, Decision, FleetSpec

_MOST_SESSIONS = 100_000
"""Names of sessions and tenants that are told apart; the one not seen for longest is forgotten."""


class Signals(NamedTuple):
    """What the fleet says of its workers now, each of shape (workers,)."""

    running: np.ndarray
    queued: np.ndarray
    kv_used_tokens: np.ndarray
    mask: np.ndarray  # may be chosen
    incarnation: np.ndarray  # restarts seen so far


@dataclass
class Ticket:
    """One request on its way.

    Attributes:
        request: its number, which counts up.
        worker: where it was sent last.
        believed_tokens: what the index says that worker has of the prompt.
        first_s: when its first byte came; -1: not yet.
        attempts: times that it was sent.
    """

    request: int
    asked: Asked
    node: int
    session: int
    arrival_s: float
    worker: int = -1
    believed_tokens: int = 0
    predicted_s: float = -1.0
    first_s: float = -1.0
    attempts: int = 0
    generation: int = 0
    tried: set[int] = field(default_factory=set)


class Seat:
    """One controller over a growing forest.

    Args:
        make: makes the controller for so many workers.
        capacities: KV tokens of each worker.
        clock: seconds, monotonic.
        page_size: of the servers' caches, tokens.
        seed: of the controller.
        shadows: controllers that only watch.
        most_tokens: forest tokens beyond which it begins anew with the prompts that were sent last; bounds memory.
    """

    def __init__(
        self,
        make: Callable[[int], Controller],
        capacities: list[int],
        clock: Callable[[], float],
        page_size: int = 1,
        seed: int = 0,
        shadows: Sequence[tuple[str, Callable[[int], Controller]]] = (),
        most_tokens: int = 32_000_000,
    ) -> None:
        self._make, self._clock, self._page, self._seed = make, clock, page_size, seed
        self._watching = shadows
        self._most_tokens = max(most_tokens, 4 * sum(capacities))
        self._start_s = clock()
        self._requests = 0
        self._names: OrderedDict[str, int] = OrderedDict()
        self._recent: deque[tuple[np.ndarray, int, Asked]] = deque()
        self._recent_tokens = 0
        self._generation = 0
        self._begin(capacities)

    @property
    def now_s(self) -> float:
        """Seconds since the start."""
        return self._clock() - self._start_s

    def _begin(self, capacities: list[int]) -> None:
        self.capacities = list(capacities)
        workers = len(capacities)
        self.inflight = np.zeros((2, workers), np.int64)
        self.controller = self._make(workers)
        self.shadows = [Shadow(name, make(workers)) for name, make in self._watching]
        self._forget()

    @property
    def _everyone(self) -> list[Controller | Shadow]:
        return [self.controller, *self.shadows]

    def _forget(self) -> None:
        self._forest = Forest(self._page)
        spec = FleetSpec(len(self.capacities), tuple(self.capacities), self._page, self._forest)
        self._known = CacheKnowledge(DEFAULT_SIGNALS, self._forest, self.capacities, self._seed)
        for each in self._everyone:
            each.reset(spec, self._seed)
        self._ended: list[np.ndarray] = []
        self._held_tokens = 0

    def enter(self, asked: Asked) -> Ticket:
        """Return the ticket of a request that has arrived."""
        if self._held_tokens > self._most_tokens:
            self._renew()
        node = self._forest.insert(asked.ids)
        self._held_tokens += len(asked.ids)
        number = self._requests
        self._requests += 1
        session = self._number(f"session {asked.session}") if asked.session else number
        return Ticket(number, asked, node, session, self.now_s, generation=self._generation)

    def route(self, ticket: Ticket, signals: Signals) -> Decision:
        """Let the controller choose a worker for a ticket, note it there, and return the decision it was shown.

        Workers that the ticket has tried already are masked, unless it has tried all that are up.

        Raises:
            SimulationError: nobody may be chosen, or the controller names somebody else.
        """
        if not signals.mask.any():
            raise SimulationError("no worker is up")
        if ticket.generation != self._generation:  # the forest is another one by now
            ticket.node, ticket.generation = self._forest.insert(ticket.asked.ids), self._generation
        self._known.see(signals.incarnation)
        decision = self._decision(ticket, signals)
        if self._ended:
            ended, self._ended = np.concatenate(self._ended), []
            for each in self._everyone:
                each.observe(ended)
        worker = int(self.controller.act(decision))
        if not 0 <= worker < len(decision.mask) or not decision.mask[worker]:
            raise SimulationError(f"the controller chose worker {worker}, which may not be chosen")
        for shadow in self.shadows:
            shadow.consider(decision, worker)
        assert decision.hit_tokens is not None, "the seat always says"
        ticket.worker, ticket.believed_tokens = worker, int(decision.hit_tokens[worker])
        ticket.predicted_s = float(getattr(self.controller, "predicted_s", -1.0))
        ticket.attempts += 1
        ticket.tried.add(worker)
        self.inflight[:, worker] += (1, len(ticket.asked.ids))
        self._known.sent(0, worker, ticket.node, decision.time_s)
        self._remember(ticket, worker)
        return decision

    def first(self, ticket: Ticket) -> None:
        """Note the first byte of an answer."""
        if ticket.first_s < 0:
            ticket.first_s = self.now_s

    def leave(self, ticket: Ticket) -> None:
        """The ticket is no longer at its worker: answered, refused, lost, or its client is gone."""
        if 0 <= ticket.worker < self.inflight.shape[1]:
            self.inflight[:, ticket.worker] -= (1, len(ticket.asked.ids))

    def end(self, ticket: Ticket, status: int, hit_tokens: int, output_tokens: int) -> np.ndarray:
        """Show the controller, before its next decision, how a ticket has ended; return the RECORD row."""
        row = np.zeros(1, RECORD)
        values = {
            "request": ticket.request, "session": ticket.session, "worker": ticket.worker, "status": status,
            "prompt_tokens": len(ticket.asked.ids), "hit_tokens": hit_tokens, "output_tokens": output_tokens,
            "attempts": ticket.attempts, "priority": ticket.asked.priority, "arrival_s": ticket.arrival_s,
            "admitted_s": -1.0, "first_token_s": ticket.first_s, "finish_s": self.now_s,
            "predicted_s": ticket.predicted_s,
        }  # fmt: skip
        for name, value in values.items():
            row[name] = value
        if ticket.generation == self._generation:
            self._ended.append(row)
        return row

    def resize(self, capacities: list[int]) -> None:
        """Begin anew for another number of workers; what was sent to those that stay is remembered."""
        held = self.inflight
        self._begin(capacities)
        kept = min(held.shape[1], len(capacities))
        self.inflight[:, :kept] = held[:, :kept]
        self._renew()

    def _decision(self, ticket: Ticket, signals: Signals) -> Decision:
        asked, most = ticket.asked, len(ticket.asked.ids) - 1
        fresh = signals.mask & ~np.isin(np.arange(len(signals.mask)), list(ticket.tried))
        return Decision(
            time_s=self.now_s,
            request=ticket.request,
            node=ticket.node,
            prompt_tokens=len(asked.ids),
            prompt_chars=round(len(asked.ids) * self._forest.chars_per_token),
            max_new_tokens=asked.max_new_tokens,
            session=ticket.session,
            turn=0,
            priority=asked.priority,
            tenant=self._number(f"tenant {asked.tenant}") if asked.tenant else 0,
            inflight=self.inflight[0].copy(),
            inflight_tokens=self.inflight[1].copy(),
            running=signals.running,
            queued=signals.queued,
            kv_used_tokens=signals.kv_used_tokens,
            kv_capacity_tokens=np.array(self.capacities, np.int64),
            mask=fresh if fresh.any() else signals.mask,
            hit_tokens=np.minimum(self._known.match_tokens(0, ticket.node), most // self._page * self._page),
            incarnation=signals.incarnation,
        )

    def _remember(self, ticket: Ticket, worker: int) -> None:
        """Keep the last prompts, two caches' worth in all, for the day when the forest begins anew."""
        self._recent.append((ticket.asked.ids, worker, ticket.asked))
        self._recent_tokens += len(ticket.asked.ids)
        while self._recent_tokens > 2 * sum(self.capacities) and len(self._recent) > 1:
            self._recent_tokens -= len(self._recent.popleft()[0])

    def _renew(self) -> None:
        """Begin the forest anew: the last prompts are shown to the controller as decisions with one choice."""
        self._generation += 1
        self._forget()
        workers, zeros = len(self.capacities), np.zeros(len(self.capacities), np.int64)
        for ids, worker, asked in [entry for entry in self._recent if entry[1] < workers]:
            ticket = Ticket(-1, asked, self._forest.insert(ids), 0, self.now_s, generation=self._generation)
            self._held_tokens += len(ids)
            only = np.arange(workers) == worker
            decision = self._decision(ticket, Signals(zeros, zeros, zeros, only, zeros))
            self.controller.act(dataclasses.replace(decision, inflight=zeros.copy(), inflight_tokens=zeros.copy()))
            self._known.sent(0, worker, ticket.node, decision.time_s)
            gone: Any = np.zeros(1, RECORD)
            gone["request"], gone["worker"], gone["status"] = -1, worker, 5
            self.controller.observe(gone)

    def _number(self, name: str) -> int:
        """Return a small number for a name, the same as long as it is remembered."""
        if name not in self._names:
            if len(self._names) >= _MOST_SESSIONS:
                self._names.popitem(last=False)
            self._counter = getattr(self, "_counter", 0) + 1
            self._names[name] = self._counter
        self._names.move_to_end(name)
        return self._names[name]
