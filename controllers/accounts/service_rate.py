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
_FORGETTING = 0.995
_ALIKE = 3.0
"""So many typical requests' worth of evidence that a worker is like the fleet."""
_BATCH = 16.0
"""Thousands of uncached tokens that a worker takes up at once at most (SGLang's max_prefill_tokens)."""
_KNOWN, _PATIENCE = 10.0, 2.0
"""A worker with less than so many typical requests behind it is slow if it takes so many times what it should."""
_TYPICAL = np.array((1.0, 1.0, 1.0))
"""The request by which workers are called fast: 1,000 cached and 1,000 uncached tokens."""
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

    The three seconds are those of the fleet, fitted to the batches of all, times one factor per worker: how long its
    own batches took over what the fleet would have taken, beside a few batches in which it is like the fleet. So what
    one worker teaches holds for all until they have shown otherwise, and one that has shown nothing yet counts as the
    fastest that has. If each started from the same guess by itself, the first to be measured on hardware faster than
    the guess would look better than all others, get their requests, and leave them idle for ever.

    Such trust must not cost much where it is wrong, so a worker that has shown little and keeps one waiting is taken
    for slow before its answer is there (`wait`). One that is well known is not: then waiting is mostly a long batch.

    Args:
        workers: number of workers.
    """

    def __init__(self, workers: int) -> None:
        self._fleet = BoundedRLS(1, np.array(START), np.array(_VARIANCE), _FORGETTING, np.array(_LOWEST))
        self._seconds = np.tile(np.array(START), (workers, 1))
        self._took_s = np.zeros(workers)  # own batches: how long they took,
        self._done = np.zeros((workers, 3))  # and what they were, both forgotten by and by
        self._measured = np.zeros(workers, bool)
        self._late = False
        self._start_s = np.full(workers, np.inf)  # of what each worker has in hand; inf: nothing
        self._hand = np.zeros((workers, 3))  # requests, thousands of cached and of uncached tokens in it
        self._queue: list[deque[_Sent]] = [deque() for _ in range(workers)]
        self._batch: list[_Batch | None] = [None] * workers  # the one being collected

    @property
    def seconds(self) -> np.ndarray:
        """Seconds per request, per 1,000 cached and per 1,000 uncached tokens, float64 (workers, 3); a live view."""
        return self._seconds

    def oldest_s(self, now_s: float) -> np.ndarray:
        """Return when the oldest unanswered request of each worker was sent, float64 (workers,); `now_s` if none is."""
        return np.array([queue[0].sent_s if queue else now_s for queue in self._queue])

    def sent(self, worker: int, time_s: float, cached: float, uncached: float) -> _Sent:
        """Note a request sent to `worker` (thousands of tokens); give what this returns to `ended`."""
        entry = _Sent(time_s, cached, uncached)
        self._queue[worker].append(entry)
        if len(self._queue[worker]) == 1:
            self._take_up(worker)
        return entry

    def wait(self, now_s: float) -> None:
        """Bring `seconds` to the time `now_s`, at which what has not been answered is still on its way."""
        fleet, factor = self._fleet.theta[0], self._factors()
        waited_s = now_s - self._start_s
        little = self._done @ fleet < _KNOWN * float(fleet @ _TYPICAL)
        late = little & (waited_s > _PATIENCE * factor * (self._hand @ fleet))
        if late.any():
            slower = self._shown(self._took_s + np.where(late, waited_s, 0.0) / _PATIENCE, self._done + self._hand)
            self._spread(np.where(late, np.maximum(slower, factor), factor))
        elif self._late:
            self._spread(factor)
        self._late = bool(late.any())

    def ended(self, worker: int, entry: _Sent, first_token_s: float) -> None:
        """Note the first-token time of a request (NaN: it failed) and learn what has become certain by it."""
        entry.first_s = first_token_s
        queue = self._queue[worker]
        while queue and queue[0].first_s is not None:
            self._add(worker, queue.popleft())
        self._take_up(worker)

    def _take_up(self, worker: int) -> None:
        """Note what `worker` has in hand: of the unanswered requests those that were there when it began the first."""
        queue, batch = self._queue[worker], self._batch[worker]
        if not queue:
            self._start_s[worker] = np.inf
            return
        start_s = queue[0].sent_s if batch is None else max(queue[0].sent_s, batch.first_s)
        requests, cached, uncached = 0.0, 0.0, 0.0
        for entry in queue:
            if entry.sent_s > start_s or uncached >= _BATCH:
                break
            requests, cached, uncached = requests + 1.0, cached + entry.cached, uncached + entry.uncached
        self._start_s[worker], self._hand[worker] = start_s, (requests, cached, uncached)

    def _spread(self, factor: np.ndarray) -> None:
        """Set `seconds` to those of the fleet times `factor`."""
        np.multiply(factor[:, None], self._fleet.theta[0], out=self._seconds)

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
        duration_s = min(batch.first_s - batch.start_s, _OUTLIER * expected_s)
        self._measured[worker] = True
        self._took_s[worker] = _FORGETTING * self._took_s[worker] + duration_s
        self._done[worker] = _FORGETTING * self._done[worker] + phi
        factor = self._factors()
        # Over the mean of all factors: what they have in common is the fleet's.
        common = math.exp(float(np.log(factor[self._measured]).mean()))
        self._fleet.update(0, phi, duration_s / factor[worker] * common)
        self._spread(self._factors())

    def _factors(self) -> np.ndarray:
        """Return each worker's factor, float64 (workers,); who has shown nothing counts as the fastest that has."""
        factor = self._shown(self._took_s, self._done)
        if self._measured.any():
            factor[~self._measured] = factor[self._measured].min()
        return factor

    def _shown(self, took_s: np.ndarray, done: np.ndarray) -> np.ndarray:
        """Return the factors of workers that took so long for what they have done, (workers,) and (workers, 3)."""
        fleet = self._fleet.theta[0]
        alike_s = _ALIKE * float(fleet @ _TYPICAL)
        return (took_s + alike_s) / (done @ fleet + alike_s)
