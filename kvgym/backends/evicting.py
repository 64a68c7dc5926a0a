"""This simulated backend asks for every victim: it stops where a worker is short of KV space."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from kvgym.backends.simulated import SimulatedBackend
from kvgym.config.cluster import ClusterConfig
from kvgym.config.signals import DEFAULT_SIGNALS, SignalsConfig
from kvgym.engine.state import DECIDE, EVICT
from kvgym.errors import SimulationError
from kvgym.jit.door import as_records
from kvgym.types import CANDIDATE, Decision, EvictionDecision
from kvgym.workloads.base import Workload


class Offer(NamedTuple):
    """Which leaves a decision offers: the `recent` least recently accessed ones and `random` others."""

    recent: int
    random: int

    @property
    def places(self) -> int:
        """Most leaves that are offered."""
        return self.recent + self.random


class EvictingBackend(SimulatedBackend):
    """One episode on the compiled engine in which somebody outside chooses what is evicted.

    Args:
        workload: requests over a forest compiled for the cluster's page size.
        cluster: the fleet.
        offer: which leaves may be chosen.
        tail_tokens: what a choice evicts: so many tokens of the leaf's tail, in whole pages; 0: the whole leaf.
        seed: of the episode; the stream "engine" draws the random candidates.
        signals: what the routers see of the fleet.
    """

    def __init__(
        self,
        workload: Workload,
        cluster: ClusterConfig,
        offer: Offer,
        tail_tokens: int,
        seed: int,
        signals: SignalsConfig = DEFAULT_SIGNALS,
    ) -> None:
        super().__init__(workload, cluster, "kvgym.engine.cache.leaves:POLICY", seed, signals)
        self.engine.cache.options["pause_evict"] = 1
        self.offer = offer
        self.tail_tokens = tail_tokens
        self._last_of = last_turns(self.workload)
        self._ended = 0  # requests whose answers have been noted
        self._last_turn = np.full(len(self.workload.forest.nodes), -1, np.int32)
        self._slots = np.zeros(0, np.int32)
        self._masks = np.tri(offer.places + 1, offer.places, -1, bool)
        self._masks.flags.writeable = False

    def fork(self) -> EvictingBackend:
        """Return an independent copy at the same point with the same random numbers."""
        twin: Any = super().fork()
        twin._last_turn = self._last_turn.copy()
        return twin

    def apply(self, worker: int, delay_s: float = 0.0) -> None:
        """Send the waiting request to `worker`; what nobody has asked for before is now its session's."""
        request = self.engine.pending
        super().apply(worker, delay_s)
        self._note(request, "prompt_node")

    def _note(self, request: int, name: str) -> None:
        """Note the session of `request` on the nodes of a path that no request has used yet."""
        parents, at = self.workload.forest.nodes["parent"], int(self.workload.requests[name][request])
        while at > 0 and self._last_turn[at] < 0:
            self._last_turn[at] = self._last_of[request]
            at = int(parents[at])

    def run_to_choice(self) -> Decision | EvictionDecision | None:
        """Run until a request needs a worker or a worker needs space; None when every request has ended."""
        code = self.engine.run()
        if code == EVICT:
            return self._eviction()
        return self._decision() if code == DECIDE else None

    def run_to_decision(self) -> Decision | None:
        """Run until a request needs a worker; the first leaf that is offered is evicted wherever space is needed."""
        while isinstance(choice := self.run_to_choice(), EvictionDecision):
            self.evict(0)
        return choice

    def _eviction(self) -> EvictionDecision:
        from kvgym.engine.entry import entry_leaves

        engine, offer = self.engine, self.offer
        for request in engine.sim.done[self._ended : engine.ended].tolist():
            self._note(request, "output_node")
        self._ended = engine.ended
        cache = engine.cache
        w = int(cache.clock["evict_worker"][0])
        rows, slots = np.zeros(offer.places, CANDIDATE), np.zeros(offer.places, np.int32)
        n = entry_leaves.offer(cache, engine.sim, w, *offer, self._last_turn, as_records(rows), slots)
        self._slots = slots[:n]
        worker = cache.workers[w]
        names = ("need", "free", "evictable", "capacity", "leaves", "unmarked", "running", "queued")
        need, free, evictable, capacity, leaves, unmarked, running, queued = (int(worker[name]) for name in names)
        return EvictionDecision(
            time_s=engine.now_s,
            worker=w,
            need_tokens=need,
            free_tokens=free,
            evictable_tokens=evictable,
            capacity_tokens=capacity,
            leaves=leaves,
            unmarked=unmarked,
            running=running,
            queued=queued,
            candidates=rows[:n],
            mask=self._masks[n],
        )

    def evict(self, index: int) -> int:
        """Evict candidate number `index` of the last decision, or the end of it; return the tokens freed.

        Raises:
            SimulationError: no such candidate was offered, or its decision is over.
        """
        from kvgym.engine.entry import entry_leaves

        if not 0 <= index < len(self._slots):
            raise SimulationError(f"candidate must be one of the {len(self._slots)} that were offered, got {index}")
        cache, slot = self.engine.cache, int(self._slots[index])
        self._slots = self._slots[:0]
        return int(entry_leaves.take(cache, int(cache.clock["evict_worker"][0]), slot, self.tail_tokens))


def last_turns(workload: Workload) -> np.ndarray:
    """Return the last request of each request's session, int32 (requests,)."""
    last, following = np.arange(len(workload.requests)), workload.requests["next"].astype(np.int64)
    while (following >= 0).any():  # doubles its reach at each pass
        going = following >= 0
        last[going] = last[following[going]]
        following[going] = following[following[going]]
    return last.astype(np.int32)
