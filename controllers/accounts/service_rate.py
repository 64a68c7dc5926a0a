"""The order and the times of first tokens tell how fast each worker really prefills."""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass

import numpy as np

from controllers.accounts.bounded_rls import BoundedRLS

START = (0.03, 0.0, 0.13)
"""Seconds per request, per 1,000 cached and per 1,000 uncached tokens before the first observation (an L40's order)."""
_VARIANCE = (1e-3, 1e-4, 1e-2)
"""Small against the noise (1 s^2), so that one odd batch moves little; ten or a hundred times as much was no better."""
_LOWEST = (0.0, 0.0, 1e-4)
_FORGETTING = 0.98
_OUTLIER = 4.0
"""A batch that took longer than so many times the expectation counts as that long: a stall says nothing about speed."""


class _Sent:
    """One request on its way through a worker; `first_s` is None until its outcome is known, NaN if it had none."""

    __slots__ = ("cached", "first_s", "sent_s", "uncached")

    def __init__(self, sent_s: float, cached: float, uncached: float) -> None:
        self.sent_s = sent_s
        self.cached = cached
        self.uncached = uncached
        self.first_s: float | None = None


@dataclass
class _Batch:
    """Requests with one first-token time: how many, and thousands of cached and of uncached tokens in all."""

    start_s: float
    first_s: float
    requests: float
    cached: float
    uncached: float


class ServiceRate:
    """Seconds per request, per cached and per uncached token of every worker, by bounded recursive least squares.

    A worker serves first come, first served and prefills before it decodes. So the prefill of a request starts when it
    was sent or when the one before it got its first token, whichever is later, and ends with its own first token;
    requests with the same first-token time were one batch. Each batch gives one equation: duration = a . (requests,
    cached, uncached tokens). Queueing cancels out, and so does decoding, which end-to-end latencies are full of: fitted
    to those, a worker that gets little work looks slow, gets even less, and stays so.

    Requests are looked at in the order in which they were sent, as soon as all before them have been answered.

    Args:
        workers: number of workers.
    """

    def __init__(self, workers: int) -> None:
        self._fit = BoundedRLS(workers, np.array(START), np.array(_VARIANCE), _FORGETTING, np.array(_LOWEST))
        self._queue: list[deque[_Sent]] = [deque() for _ in range(workers)]
        self._batch: list[_Batch | None] = [None] * workers  # the one being collected

    @property
    def seconds(self) -> np.ndarray:
        """Seconds per request, per 1,000 cached and per 1,000 uncached tokens, float64 (workers, 3); a live view."""
        return self._fit.theta

    def oldest_s(self, now_s: float) -> np.ndarray:
        """Return when the oldest unanswered request of each worker was sent, float64 (workers,); `now_s` if none is."""
        return np.array([queue[0].sent_s if queue else now_s for queue in self._queue])

    def sent(self, worker: int, time_s: float, cached: float, uncached: float) -> _Sent:
        """Note a request sent to `worker` (thousands of tokens); give what this returns to `ended`."""
        entry = _Sent(time_s, cached, uncached)
        self._queue[worker].append(entry)
        return entry

    def ended(self, worker: int, entry: _Sent, first_token_s: float) -> None:
        """Note the first-token time of a request (NaN: it failed) and learn what has become certain by it."""
        entry.first_s = first_token_s
        queue = self._queue[worker]
        while queue and queue[0].first_s is not None:
            self._add(worker, queue.popleft())

    def _add(self, worker: int, entry: _Sent) -> None:
        batch, first_s = self._batch[worker], entry.first_s
        if first_s is None or math.isnan(first_s):
            return
        if batch is not None and first_s <= batch.first_s:
            batch.requests += 1.0
            batch.cached += entry.cached
            batch.uncached += entry.uncached
            return
        start_s = entry.sent_s
        if batch is not None:
            start_s = max(start_s, batch.first_s)
            self._learn(worker, batch)
        self._batch[worker] = _Batch(start_s, first_s, 1.0, entry.cached, entry.uncached)

    def _learn(self, worker: int, batch: _Batch) -> None:
        request_s, cached_s, uncached_s = self.seconds[worker].tolist()
        expected_s = request_s * batch.requests + cached_s * batch.cached + uncached_s * batch.uncached
        phi = np.array((batch.requests, batch.cached, batch.uncached))
        self._fit.update(worker, phi, min(batch.first_s - batch.start_s, _OUTLIER * expected_s))
