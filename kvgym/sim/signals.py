"""What leaves the compiled state: per-worker signals for a decision, and records of what has ended."""

from __future__ import annotations

import numpy as np

from kvgym.jit import i64, njit
from kvgym.sim.cache import peek
from kvgym.sim.memory import cacheable
from kvgym.sim.state import Cache, Sim

INFLIGHT, INFLIGHT_TOKENS, RUNNING, QUEUED, KV_USED, KV_CAPACITY, HIT = range(7)
"""Rows of the signal matrix, int64 (7, workers)."""
SIGNALS = 7


@njit()
def read_signals(c: Cache, x: Sim, exact: bool, out: np.ndarray) -> int:
    """Write what a router may see of each worker to `out`, int64 (7, workers).

    Row HIT is written only if `exact`: tokens of the pending prompt that an admission would find.

    Returns:
        The most tokens of the pending prompt that a cache can answer: one is always computed, whole pages count.
    """
    r = c.clock[0].pending
    most = i64(cacheable(c, x, r, i64(x.requests[r].prompt_tokens - 1)))
    for w in range(len(c.workers)):
        worker = c.workers[w]
        out[INFLIGHT, w], out[INFLIGHT_TOKENS, w] = worker.inflight, worker.inflight_tokens
        out[RUNNING, w], out[QUEUED, w] = worker.running, worker.queued
        out[KV_USED, w], out[KV_CAPACITY, w] = worker.capacity - worker.free, worker.capacity
        if exact:
            out[HIT, w] = peek(c, w, i64(x.requests[r].prompt_node), most)
    return most


@njit()
def read_records(x: Sim, first: int, rows: np.ndarray) -> None:
    """Fill RECORD `rows` with the requests that ended as number `first`, `first` + 1, ..."""
    for i in range(len(rows)):
        r = i64(x.done[first + i])
        live, request, row = x.live[r], x.requests[r], rows[i]
        row.request, row.session, row.turn = r, request.session, request.turn
        row.worker, row.status = live.worker, live.status
        row.prompt_tokens, row.hit_tokens, row.output_tokens = request.prompt_tokens, live.hit, live.out
        row.retractions, row.attempts = live.retractions, live.attempts
        row.priority, row.tenant = request.priority, request.tenant
        row.arrival_s, row.admitted_s = live.release_s, live.admitted_s
        row.first_token_s, row.finish_s = live.first_s, live.finish_s
        row.predicted_s = -1.0
