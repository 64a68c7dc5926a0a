"""A router counts what it has in flight at each worker, in measured seconds of work, and learns from the answers."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from controllers.accounts.cache_model import CacheModel
from controllers.accounts.service_rate import ServiceRate
from kvgym.control import lost_caches
from kvgym.types import DONE, Decision, FleetSpec


class Sent(NamedTuple):
    """A request in flight."""

    worker: int
    node: int
    time_s: float
    cost_s: float
    entry: Any  # its place in the service rate's queue
    note: Any  # the owner's


class InFlight:
    """Work of every worker from what was sent there and answered; no engine metrics are needed.

    The owner calls `begin` with each decision, then tells its choice with `send`, and what has ended with `observe`. A
    worker that has restarted leaves the index. A request sent again first gives back what it held.

    Attributes:
        cache: which prefixes each worker holds, by an index of its cache's size.
        rate: seconds per request, per cached and per uncached token of each worker, from first-token times.
        work_s: work left, float64 (workers,): every send adds its cost, which then drains; never above `held_s`, so 0
            when nothing is in flight.
        held_s: costs of what is in flight, without any drain, float64 (workers,).
        inflight: requests in flight, int64 (workers,).

    Args:
        spec: the fleet.
        rho: factor by which `work_s` decays every `delta_t_s`; None: it drains by one second per second.
        delta_t_s: period of the decay, seconds.
    """

    def __init__(self, spec: FleetSpec, rho: float | None = None, delta_t_s: float = 0.02) -> None:
        self.cache = CacheModel(spec)
        self.rate = ServiceRate(spec.workers)
        self.work_s = np.zeros(spec.workers)
        self.held_s = np.zeros(spec.workers)
        self.inflight = np.zeros(spec.workers, np.int64)
        self._rho, self._delta_t_s = rho, delta_t_s
        self._sent: dict[int, Sent] = {}
        self._incarnation: np.ndarray | None = None
        self._now_s = 0.0

    def begin(self, decision: Decision) -> None:
        """Bring the account to the time of a decision."""
        self.drain(decision.time_s)
        self.rate.wait(decision.time_s)
        for lost in lost_caches(self._incarnation, decision.incarnation):
            self.cache.remove_worker(lost)
        self._incarnation = decision.incarnation
        if decision.request in self._sent:
            self._release(self._sent.pop(decision.request), np.nan)

    def send(
        self, decision: Decision, worker: int, cached: float, uncached: float, cost_s: float, note: Any = None
    ) -> None:
        """Note that the request of `decision` goes to `worker`, and the prompt with it.

        Args:
            decision: as given to `begin`.
            worker: the choice.
            cached: prompt tokens that it has there, thousands.
            uncached: the others, thousands.
            cost_s: seconds of work that it is.
            note: comes back from `observe`.
        """
        entry = self.rate.sent(worker, decision.time_s, cached, uncached)
        self._sent[decision.request] = Sent(worker, decision.node, decision.time_s, cost_s, entry, note)
        self.work_s[worker] += cost_s
        self.held_s[worker] += cost_s
        self.inflight[worker] += 1
        self.cache.remember(worker, decision.node, decision.time_s)

    def observe(self, records: np.ndarray) -> list[tuple[Sent, float]]:
        """Take ended requests (RECORD rows) off their workers; return the done ones, and when they ended in seconds."""
        done = []
        columns = (records[name].tolist() for name in ("request", "status", "first_token_s", "finish_s"))
        for request, status, first_s, finish_s in zip(*columns, strict=True):
            sent = self._sent.pop(request, None)
            if sent is None:
                continue
            self.drain(finish_s)
            # without streaming there is no first token; the answer is then the first thing seen
            self._release(sent, (first_s if first_s > 0 else finish_s) if status == DONE else np.nan)
            if status == DONE:
                self.cache.remember(sent.worker, sent.node, finish_s)
                done.append((sent, finish_s))
        return done

    def drain(self, time_s: float) -> None:
        """Let the work drain up to `time_s`; a time in the past changes nothing."""
        if time_s <= self._now_s:
            return
        if self._rho is None:
            np.maximum(self.work_s - (time_s - self._now_s), 0.0, out=self.work_s)
        else:
            self.work_s *= self._rho ** (self._ticks(time_s) - self._ticks(self._now_s))
        self._now_s = time_s

    def _ticks(self, time_s: float) -> int:
        """Return the whole periods in `time_s`, counted in microseconds so that a multiple of one lies on its tick."""
        return round(time_s * 1e6) // round(self._delta_t_s * 1e6)

    def _release(self, sent: Sent, first_token_s: float) -> None:
        """Take a request out of the load of its worker."""
        worker = sent.worker
        self.inflight[worker] -= 1
        self.held_s[worker] = max(self.held_s[worker] - sent.cost_s, 0.0) if self.inflight[worker] else 0.0
        self.work_s[worker] = min(self.work_s[worker], self.held_s[worker])
        self.rate.ended(worker, sent.entry, first_token_s)
