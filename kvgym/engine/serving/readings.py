"""Signals for a decision and records of what has ended are read out of the compiled state."""

from __future__ import annotations

import numpy as np

from kvgym.engine.cache.blocks import peek_blocks
from kvgym.engine.cache.radix import peek
from kvgym.engine.pages import cacheable
from kvgym.engine.serving.scrape import delivered
from kvgym.engine.state import Cache, Sim
from kvgym.jit.door import i64, njit

INFLIGHT, INFLIGHT_TOKENS, RUNNING, QUEUED, KV_USED, KV_CAPACITY, HIT = range(7)
"""Rows of the signal matrix, int64 (7, workers)."""
SIGNALS = 7


@njit()
def read_signals(c: Cache, x: Sim, exact: bool, out: np.ndarray) -> int:
    """Write what the pending request's router may see of each worker to `out`, int64 (7, workers), 0 before.

    The rows INFLIGHT and INFLIGHT_TOKENS are its own counts; RUNNING, QUEUED and KV_USED come from the engines, fresh
    or by scrapes (0 before the first). Row HIT is written only if `exact`: tokens of the pending prompt that an
    admission would find.

    Returns:
        The most tokens of the pending prompt that a cache can answer: one is always computed, whole pages count.
    """
    r = c.clock[0].pending
    most = i64(cacheable(c, x, r, i64(x.requests[r].prompt_tokens - 1)))
    sent, scraped = x.sent[x.live[r].router], c.options[0].scrape_s > 0.0
    k = delivered(c) if scraped else i64(-1)
    for w in range(len(c.workers)):
        worker = c.workers[w]
        out[INFLIGHT, w], out[INFLIGHT_TOKENS, w] = sent[0, w], sent[1, w]
        out[KV_CAPACITY, w] = worker.capacity
        if not scraped:
            out[RUNNING, w], out[QUEUED, w] = worker.running, worker.queued
            out[KV_USED, w] = worker.capacity - worker.free
        elif k >= 0:
            scrape = x.scrapes[k % len(x.scrapes)]
            out[RUNNING, w], out[QUEUED, w], out[KV_USED, w] = scrape[0, w], scrape[1, w], scrape[2, w]
        if exact:
            node = i64(x.requests[r].prompt_node)
            out[HIT, w] = peek_blocks(c, w, node, most) if worker.blocked == 1 else peek(c, w, node, most)
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
