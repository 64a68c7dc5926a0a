"""One worker's scheduler follows SGLang 0.5.23's rules: no overlap, no speculation, no host cache.

The rules (source: sglang/srt/managers/schedule_policy.py, schedule_batch.py, scheduler.py of 0.5.23):

1. Waiting requests are served first come, first served. Prefill goes before decode: a decode step runs only when no
   prompt can be admitted. A step is not interrupted.
2. Admission of the head of the queue: match prompt[:n-1] in the cache and lock it. It needs
   extend + max_new + one page < free + evictable - reserved, where reserved sums, over running requests, what they may
   still generate (at most 4,096 each; times `ratio` without ignore_eos, and in 0.4.6 with it, too) and, over requests
   admitted in this pass, their
   extend rounded up to pages + one page + max_new. If it does not fit, nobody behind it is tried, and admission stays
   shut (`full`) until a request leaves the running batch.
3. A prefill batch computes at most `chunk` tokens; the prompt that does not fit is cut at a page boundary and continues
   at the head of the next batch (one such prompt at a time). Its computed chunks are inserted into the cache after each
   step, so a twin admitted later reuses them. `max_prefill_tokens` bounds the batch as well.
4. Memory for a batch is allocated at once: demand = new tokens, plus one page per request for page sizes above 1; what
   is missing is evicted (the shortfall; in 0.4.6 the whole demand). A decode step asks for one token
   per request, one page per request for page sizes above 1.
5. When a decode step finds too little memory even so, requests are retracted: fewest generated tokens first, longer
   prompts first among equals. They give back their private tokens, lose their lock and go to the back of the queue with
   what they have generated as part of the prompt, and 20 tokens are freed for each request that goes on.
6. After a prefill the prompt is inserted into the cache; at the finish prompt + output - 1 tokens (the last sampled
   token has no KV), split at the prompt boundary, the prompt part with priority + 1.

7. With mixed chunks (--enable-mixed-chunk) running requests decode in prefill steps, too, one token each, which counts
   against the chunk's and the batch's budget and is reserved. They sit a step out if, with the prefill's memory taken,
   theirs can't be had; nobody is retracted for it.

Not modelled: the refresh of waiting prefixes every 32nd pass (only caches without fast matching do it). Of 0.4.6's
scheduler the two rules named here are taken, the rest is 0.5.23's.

A worker is a state machine (WORKER.phase). `advance` moves it on; it can stop wherever memory is needed and be resumed.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from kvgym.engine.cache.radix import lock, match, unlock
from kvgym.engine.pages import RATIO_INIT, cacheable, generated, page_ceil, path_node
from kvgym.engine.serving.batches import (
    alloc_decode,
    alloc_prefill,
    boundary_demand,
    shortfall,
    start_decode,
    start_prefill,
    take_prefill_pages,
)
from kvgym.engine.serving.queues import batch_push, queue_pop
from kvgym.engine.state import (
    ALLOC_DECODE,
    ALLOC_MIXED,
    ALLOC_PREFILL,
    ALLOC_TAILS,
    DECODE,
    IDLE,
    PREFILL,
    READY,
    Cache,
    Sim,
)
from kvgym.jit.door import i64, njit

CLIP_NEW_TOKENS = 4096
"""Most future tokens that are reserved for one request (SGLANG_CLIP_MAX_NEW_TOKENS_ESTIMATION)."""


@njit()
def reserved_for_running(c: Cache, x: Sim, w: int) -> float:
    """Tokens that the running batch may still generate, weighted by the new-token ratio."""
    total = 0.0
    ratio = 1.0 if c.options[0].ignore_eos == 1 and c.workers[w].in_full == 1 else c.workers[w].ratio
    r = i64(c.workers[w].run_head)
    while r >= 0:
        left = i64(x.live[r].asked) - generated(c, x, w, r)
        total += min(left, CLIP_NEW_TOKENS) * ratio
        r = i64(x.live[r].next)
    return total


@njit()
def continue_chunk(c: Cache, x: Sim, w: int, chunk: int, reserved: float) -> tuple[int, float]:
    """Put the partly computed prompt at the head of the batch; return (at most `chunk` tokens of it, reserved)."""
    worker, page = c.workers[w], c.options[0].page
    r = i64(worker.chunked)
    live = x.live[r]
    room = min(float(chunk), np.floor(worker.free + worker.evictable - reserved))
    budget = i64(room) if room > 0 else chunk
    rest = i64(live.goal - live.kv)
    live.extend = min(rest, budget)
    reserved += page_ceil(i64(live.extend), page) + page
    if rest <= budget:
        reserved += min(i64(live.asked), CLIP_NEW_TOKENS)
        worker.chunked = -1
    batch_push(c, x, w, r)
    return i64(live.extend), reserved


@njit()
def try_admit(c: Cache, x: Sim, hooks: Any, w: int, budget: int, reserved: float) -> tuple[int, float]:
    """Try the head of the queue: lock its cached prefix and set its extend.

    Args:
        c: the cache.
        x: the episode.
        hooks: the eviction policy.
        w: worker.
        budget: tokens left in this step's chunk budget.
        reserved: tokens spoken for.

    Returns:
        (tokens it computes in this step; 0: no memory, -1: less than a page of budget), reserved with it.
    """
    worker, page = c.workers[w], c.options[0].page
    r = i64(worker.queue_head)
    live = x.live[r]
    slot = match(c, hooks, w, path_node(x, r, i64(live.goal - 1)), cacheable(c, x, r, i64(live.goal - 1)))
    prefix = i64(c.slots[slot].d1)
    extend = i64(live.goal) - prefix
    asked = i64(live.asked)
    new = min(max(asked - i64(live.out), 0), CLIP_NEW_TOKENS)
    lock(c, hooks, w, slot, w)
    if extend + new + page >= worker.free + worker.evictable - reserved:
        unlock(c, hooks, w, slot)
        return 0, reserved
    cut = page_ceil(extend, page) > budget
    if cut:
        extend = (prefix + budget // page * page) // page * page - prefix
        if extend <= 0:
            unlock(c, hooks, w, slot)
            return -1, reserved
        worker.chunked = r
    live.slot, live.prefix, live.kv, live.extend = slot, prefix, prefix, extend
    if live.admitted_s < 0.0:
        live.hit = prefix
        worker.hit += prefix
        worker.prompted += i64(live.goal)
        worker.admitted += 1
        live.admitted_s = c.clock[0].now_s
    reserved += page_ceil(extend, page) + page
    if not cut:
        reserved += min(asked, CLIP_NEW_TOKENS)
    return extend, reserved


@njit()
def admit(c: Cache, x: Sim, hooks: Any, w: int) -> None:
    """Build the next prefill batch (worker.batch requests; none: the batch stays empty)."""
    worker, options, now_s = c.workers[w], c.options[0], c.clock[0].now_s
    if worker.running == 0:
        worker.full = 0
    if (worker.full == 1 or worker.queued == 0) and worker.chunked < 0:
        return
    places = options.max_running - worker.running
    if places <= 0 and worker.chunked < 0:
        worker.full = 1
        return
    spent = i64(worker.running if worker.mixed_chunk == 1 else 0)
    reserved = reserved_for_running(c, x, w) + spent
    if worker.chunked >= 0:
        extend, reserved = continue_chunk(c, x, w, options.chunk - spent, reserved)
        spent += page_ceil(extend, options.page)
    while worker.full == 0 and worker.queued > 0 and x.live[worker.queue_head].enter_s <= now_s:
        # SGLang asks for memory before it asks for budget: without memory the head is tried even if no budget is left.
        if spent >= min(options.chunk, options.prefill) and worker.free + worker.evictable - reserved > 0:
            break
        if worker.batch >= places:
            worker.full = 1
            break
        extend, reserved = try_admit(c, x, hooks, w, options.chunk - spent, reserved)
        if extend <= 0:
            worker.full = i64(extend == 0 and (worker.batch > 0 or worker.running > 0))
            break
        batch_push(c, x, w, queue_pop(c, x, w))
        spent += page_ceil(extend, options.page)
        if worker.free + worker.evictable - reserved <= 0:
            worker.full = 1
            break


@njit()
def schedule(c: Cache, x: Sim, hooks: Any, w: int) -> None:
    """Choose the next step of a READY worker: prefill, decode, or wait for a request on its way."""
    worker = c.workers[w]
    admit(c, x, hooks, w)
    if worker.batch > 0:
        worker.phase = ALLOC_PREFILL
        alloc_prefill(c, x, w)
    elif worker.running > 0:
        worker.phase = ALLOC_DECODE
        alloc_decode(c, x, w)
    elif worker.queued > 0:
        worker.ratio = RATIO_INIT
        worker.due_s = x.live[worker.queue_head].enter_s
        if worker.due_s <= c.clock[0].now_s:
            c.clock[0].error = w + 1
    else:
        worker.phase = IDLE
        worker.due_s = np.inf
        worker.ratio = RATIO_INIT


@njit()
def advance(c: Cache, x: Sim, hooks: Any, w: int) -> bool:
    """Move worker w on until a step runs, it is idle, or it waits; return True when it pauses for an eviction.

    Resuming is calling it again: `need` tells how much is still to be freed.
    """
    worker = c.workers[w]
    if worker.phase == READY:
        schedule(c, x, hooks, w)
    while worker.phase != IDLE and worker.phase != READY and worker.phase != PREFILL and worker.phase != DECODE:
        if worker.need > 0 and worker.evictable > 0:
            if c.options[0].pause_evict == 1:
                return True
            hooks.evict(c, w, worker.need)
        worker.need = 0
        allocated(c, x, hooks, w)
    return False


@njit()
def allocated(c: Cache, x: Sim, hooks: Any, w: int) -> None:
    """What could be evicted for the step in the making is free: start it, or ask for what it needs next."""
    worker = c.workers[w]
    if worker.phase == ALLOC_DECODE:
        start_decode(c, x, hooks, w)
        return
    if worker.phase == ALLOC_PREFILL:
        take_prefill_pages(c, x, w)
        if worker.mixed_chunk == 1 and worker.running > 0:
            worker.phase, worker.need = ALLOC_TAILS, shortfall(c, w, boundary_demand(c, x, w))
            return
    elif worker.phase == ALLOC_TAILS and worker.free >= boundary_demand(c, x, w):
        worker.phase, worker.mixed = ALLOC_MIXED, 1
        alloc_decode(c, x, w)
        return
    start_prefill(c, x, w)
