"""One vLLM worker's scheduler follows v1 of 0.13.0 or 0.33.0: one engine, first come first served, synchronous.

The rules (source: vllm/v1/core/sched/scheduler.py and kv_cache_manager.py of both releases; shared runs with the real
classes: tests/differential):

1. A step has one budget of `chunk` tokens (max_num_batched_tokens). Running requests come first, in the order of their
   admission: a decode takes one token, a prompt what is left of it, of the budget, of long_prefill_token_threshold.
   Then waiting ones are admitted, first come first served, while budget and places (max_num_seqs) last. So decodes and
   chunks of prompts share each step.
2. A running request that needs a block when none is free preempts the request admitted last, itself at the worst. That
   one loses all its blocks and goes to the head of the queue; what it has generated counts as its prompt. A step that
   preempts admits nobody.
3. Admission looks up the longest prefix of whole blocks, at most all tokens but one; it needs free blocks for the first
   chunk (0.33: for the whole prompt), found blocks on the free list included. Nothing is reserved for the answer. Who
   does not fit holds up those behind it.
4. Full blocks are hashed when they are allocated, so a twin admitted in the same step finds them.
5. When a request ends, its blocks go to the free list at once, the last one first.

Steps in which nothing can happen are leapt over as SGLang's are: a leap ends where an answer ends or a block is full.
Not modelled: asynchronous scheduling, priorities, speculative decoding.
"""

from __future__ import annotations

import numpy as np

from kvgym.engine.cache.blocks import (
    find_blocks,
    give_row,
    hash_blocks,
    hold,
    release_blocks,
    take_block,
    take_row,
)
from kvgym.engine.pages import page_ceil
from kvgym.engine.serving.answers import end_request, send_first
from kvgym.engine.serving.batches import cut_leap, step_seconds
from kvgym.engine.serving.queues import queue_pop, queue_push_first, run_push, run_remove
from kvgym.engine.state import DECODE, IDLE, PREFILL, Cache, Sim
from kvgym.jit.door import i64, njit
from kvgym.types import DONE


@njit()
def allocate(c: Cache, x: Sim, w: int, r: int, tokens: int) -> bool:
    """Give request r blocks for its first `tokens` tokens and hash the full ones; False: too few are free."""
    live, page = x.live[r], c.options[0].page
    need = page_ceil(tokens, page) // page
    if (need - live.blocks) * page > c.workers[w].free:
        return False
    for k in range(i64(live.blocks), need):
        x.tables[live.row, k] = take_block(c, w)
    live.blocks = max(i64(live.blocks), need)
    hash_blocks(c, x, w, r, tokens)
    return True


@njit()
def preempt(c: Cache, x: Sim, w: int) -> int:
    """Send the request that was admitted last back to the head of the queue; return it."""
    worker = c.workers[w]
    r = i64(worker.run_tail)
    release_blocks(c, x, w, r)
    run_remove(c, x, w, r)
    live = x.live[r]
    live.kv = live.extend = 0
    live.retractions += 1
    worker.retractions += 1
    queue_push_first(c, x, w, r)
    return r


@njit()
def longest_chunk(c: Cache, x: Sim, w: int) -> int:
    """Most tokens of one prompt in the next step; 0.33 does not cut the prompt of a request that is alone."""
    worker, threshold = c.workers[w], c.options[0].long_prefill
    if threshold == 0:
        return c.options[0].chunk
    waiting = i64(0)
    r = i64(worker.queue_head)
    while r >= 0 and waiting < 2 and x.live[r].enter_s <= c.clock[0].now_s:
        waiting += 1
        r = i64(x.live[r].next)
    alone = worker.whole_prompt == 1 and worker.running + waiting <= 1
    return c.options[0].chunk if alone else threshold


@njit()
def plan_running(c: Cache, x: Sim, w: int, most: int) -> tuple[int, bool]:
    """Give running requests at most `most` tokens each; return (budget that is left, whether one was preempted)."""
    budget, preempted = i64(c.options[0].chunk), False
    r = i64(c.workers[w].run_head)
    while r >= 0:
        live = x.live[r]
        n = min(i64(live.goal - live.kv), most, budget)
        while n > 0 and not allocate(c, x, w, r, i64(live.kv) + n):
            preempted = True
            if preempt(c, x, w) == r:
                return budget, True
        live.extend = n
        budget -= n
        r = i64(live.next)
    return budget, preempted


@njit()
def try_enter(c: Cache, x: Sim, w: int, most: int) -> int:
    """Admit the head of the queue with at most `most` tokens; return how many, 0: its blocks are not there."""
    worker, page = c.workers[w], c.options[0].page
    r = i64(worker.queue_head)
    live = x.live[r]
    take_row(c, x, r)
    found, free = find_blocks(c, x, w, r, i64(live.goal) - 1)
    live.kv = found * page
    n = min(i64(live.goal - live.kv), most)
    end = i64(live.goal) if worker.whole_prompt == 1 else i64(live.kv) + n
    if page_ceil(end, page) - live.kv + free * page > worker.free:
        live.kv = 0
        give_row(c, x, r)
        return 0
    for k in range(found):
        hold(c, w, i64(x.tables[live.row, k]))
    live.blocks = live.hashed = found
    queue_pop(c, x, w)
    run_push(c, x, w, r)
    allocate(c, x, w, r, i64(live.kv) + n)
    live.extend = n
    if live.admitted_s < 0.0:
        live.hit = live.kv
        worker.hit += live.kv
        worker.prompted += i64(live.goal)
        worker.admitted += 1
        live.admitted_s = c.clock[0].now_s
    return n


@njit()
def plan_waiting(c: Cache, x: Sim, w: int, budget: int, most: int) -> None:
    """Admit waiting requests within `budget`, at most `most` tokens each; `full`: nobody enters until one leaves."""
    worker = c.workers[w]
    while budget > 0 and worker.queued > 0 and x.live[worker.queue_head].enter_s <= c.clock[0].now_s:
        worker.full = i64(worker.running >= c.options[0].max_running)
        n = i64(0) if worker.full == 1 else try_enter(c, x, w, min(budget, most))
        if n == 0:
            return
        budget -= n


@njit()
def plan_step(c: Cache, x: Sim, w: int) -> None:
    """Choose and start the next step of a READY vLLM worker, or wait for a request on its way."""
    worker = c.workers[w]
    worker.full = 0
    most = longest_chunk(c, x, w)
    budget, preempted = plan_running(c, x, w, most)
    if not preempted:
        plan_waiting(c, x, w, budget, most)
    if worker.running > 0:
        start_step(c, x, w, preempted)
    elif worker.queued > 0:
        worker.due_s = x.live[worker.queue_head].enter_s
        if worker.due_s <= c.clock[0].now_s:
            c.clock[0].error = w + 1
    else:
        worker.phase, worker.due_s = IDLE, np.inf


@njit()
def start_step(c: Cache, x: Sim, w: int, preempted: bool) -> None:
    """Start the step that the running requests' `extend` describe; decodes alone leap where nothing can happen."""
    worker, o = c.workers[w], c.options[0]
    tokens, decodes, context, attention, leap = i64(0), i64(0), i64(0), 0.0, i64(1 << 40)
    waiting = i64(worker.queued > 0)  # who waits for blocks may find one in the step that fills it
    r = i64(worker.run_head)
    while r >= 0:
        live = x.live[r]
        n, kv = i64(live.extend), i64(live.kv)
        if n == 1 and live.out > 0 and kv + 1 == live.goal:
            decodes += 1
            context += kv
            leap = min(leap, i64(live.target - live.out), max(i64(live.blocks) * o.page - kv - waiting, 1))
        elif n > 0:
            tokens += n
            attention += o.p_quad * n * (kv + 0.5 * n) + o.p_kv * float(kv + n)
        r = i64(live.next)
    worker.start_s, worker.context = c.clock[0].now_s, context
    if decodes == worker.running:
        worker.phase, worker.leap = DECODE, 1 if preempted else leap
        worker.due_s = worker.start_s + step_seconds(c, w, i64(worker.leap))
        if worker.queued > 0 and worker.full == 0 and x.live[worker.queue_head].enter_s > worker.start_s:
            cut_leap(c, w, x.live[worker.queue_head].enter_s)
        return
    worker.phase, worker.leap = PREFILL, 1
    weights, compute = o.d0 + o.d_seq * float(decodes), o.p0 + o.p_tok * float(tokens + decodes)
    seconds = o.step_s + max(weights, compute) + attention + (o.d_kvtok + o.mix_kvtok) * float(context + decodes)
    worker.due_s = worker.start_s + seconds / worker.speed


@njit()
def end_step(c: Cache, x: Sim, w: int) -> None:
    """The step, or leap, has ended: count tokens, send first ones, end the answers that are complete."""
    worker = c.workers[w]
    leap = i64(worker.leap)
    worker.steps += leap
    worker.context = 0
    r = i64(worker.run_head)
    while r >= 0:
        live = x.live[r]
        following = i64(live.next)
        live.kv += live.extend * leap
        if live.kv >= live.goal:
            hash_blocks(c, x, w, r, i64(live.kv))
            live.out += leap
            live.goal += leap
            if live.first_s < 0:
                send_first(c, x, r)
            if live.out >= live.target:
                release_blocks(c, x, w, r)
                run_remove(c, x, w, r)
                end_request(c, x, r, DONE)
        r = following
