"""A router's own account of each worker, in measured seconds: work left, work in flight, the cost of a prompt."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from controllers.base import lost_caches
from controllers.routing.cache_model import CacheModel
from controllers.routing.service_rate import ServiceRate
from kvgym.types import DONE, Decision, FleetSpec

_SMOOTHING = 0.1
"""Weight of the newest latency in a worker's moving average."""


class _Sent(NamedTuple):
    """A request in flight; `entry` is its place in the service rate's queue."""

    worker: int
    node: int
    time_s: float
    cost_s: float
    entry: Any


class Look(NamedTuple):
    """What a prompt meets at each worker, shape (workers,) each."""

    hit_tokens: np.ndarray  # by the router's index
    miss_s: np.ndarray  # prefill of the uncached tokens alone
    cost_s: np.ndarray  # the whole request


class WorkModel:
    """Virtual work of every worker from what was sent there and answered; no engine metrics are needed.

    A request costs a0 + a_h * h + a_u * u seconds for h cached and u uncached tokens, by an index of the caches' size
    (`cache_model`). The three alphas are measured per worker from first-token times (`service_rate`), so slow, fast and
    unequal workers come out right.

    The caller asks with `look`, then tells its choice with `send`, and what has ended with `observe`. A worker that has
    restarted leaves the index. A request sent again first gives back what it held.

    Attributes:
        work_s: virtual work left, float64 (workers,): every send adds its cost, one second drains per second; never
            above `held_s`, so 0 when nothing is in flight.
        held_s: costs of what is in flight, without any drain, float64 (workers,).
        inflight: requests in flight, int64 (workers,).
        answered_s: time of the last answer, float64 (workers,); 0 before the first.
        latency_s: moving average from choice to answer, float64 (workers,); 0 before the first answer.

    Args:
        spec: the fleet.
    """

    def __init__(self, spec: FleetSpec) -> None:
        self.cache = CacheModel(spec)
        self.rate = ServiceRate(spec.workers)
        self.work_s = np.zeros(spec.workers)
        self.held_s = np.zeros(spec.workers)
        self.inflight = np.zeros(spec.workers, np.int64)
        self.answered_s = np.zeros(spec.workers)
        self.latency_s = np.zeros(spec.workers)
        self._sent: dict[int, _Sent] = {}
        self._incarnation: np.ndarray | None = None
        self._now_s = 0.0

    def look(self, decision: Decision) -> Look:
        """Bring the account to the decision's time and price its prompt at each worker."""
        self._advance(decision.time_s)
        for lost in lost_caches(self._incarnation, decision.incarnation):
            self.cache.remove_worker(lost)
        self._incarnation = decision.incarnation
        if decision.request in self._sent:
            self._release(self._sent.pop(decision.request), np.nan)
        hit = np.minimum(self.cache.match_tokens(decision.node), decision.prompt_tokens - 1)
        seconds = self.rate.seconds
        miss_s = seconds[:, 2] * (decision.prompt_tokens - hit) / 1000.0
        return Look(hit, miss_s, seconds[:, 0] + seconds[:, 1] * hit / 1000.0 + miss_s)

    def send(self, decision: Decision, worker: int, look: Look) -> None:
        """Note that the request of `decision` goes to `worker`; `look` is what was said of it."""
        hit, cost_s = int(look.hit_tokens[worker]), float(look.cost_s[worker])
        entry = self.rate.sent(worker, decision.time_s, hit / 1000.0, (decision.prompt_tokens - hit) / 1000.0)
        self._sent[decision.request] = _Sent(worker, decision.node, decision.time_s, cost_s, entry)
        self.work_s[worker] += cost_s
        self.held_s[worker] += cost_s
        self.inflight[worker] += 1
        self.cache.remember(worker, decision.node, decision.time_s)

    def observe(self, records: np.ndarray) -> None:
        """Take ended requests (RECORD rows) off their workers and learn from those that are done."""
        columns = (records[name].tolist() for name in ("request", "status", "first_token_s", "finish_s"))
        for request, status, first_s, finish_s in zip(*columns, strict=True):
            sent = self._sent.pop(request, None)
            if sent is None:
                continue
            self._advance(finish_s)
            # without streaming there is no first token; the answer is then the first thing seen
            self._release(sent, (first_s if first_s > 0 else finish_s) if status == DONE else np.nan)
            if status == DONE:
                self.cache.remember(sent.worker, sent.node, finish_s)
                self._note(sent.worker, finish_s, finish_s - sent.time_s)

    def _note(self, worker: int, time_s: float, latency_s: float) -> None:
        """Take note of an answer for the two descriptive columns."""
        first = self.answered_s[worker] == 0
        self.answered_s[worker] = max(time_s, self.answered_s[worker])
        self.latency_s[worker] += (1.0 if first else _SMOOTHING) * (latency_s - self.latency_s[worker])

    def _advance(self, time_s: float) -> None:
        if time_s > self._now_s:
            np.maximum(self.work_s - (time_s - self._now_s), 0.0, out=self.work_s)
            self._now_s = time_s

    def _release(self, sent: _Sent, first_token_s: float) -> None:
        worker = sent.worker
        self.inflight[worker] -= 1
        self.held_s[worker] = max(self.held_s[worker] - sent.cost_s, 0.0) if self.inflight[worker] else 0.0
        self.work_s[worker] = min(self.work_s[worker], self.held_s[worker])
        self.rate.ended(worker, sent.entry, first_token_s)
