"""Steps of one worker: memory for a batch, its duration, and what its end does to requests and cache.

Step times follow the linear cost model (seconds; n computed, c cached tokens of a sequence, B sequences):
prefill = p0 + sum(p_tok*n + p_quad*n*(c + n/2) + p_kv*(c + n)); decode = d0 + d_seq*B + d_kvtok*context; a step of both
reads the weights once and computes for all tokens, max(d0 + d_seq*B, p0 + p_tok*(sum(n) + B)), plus the attention terms
of each, the decodes' with mix_kvtok more per token of context; all plus step_s, divided by the worker's speed.

Decode steps among which nothing can happen are made in one *leap*: `leap` steps end at `due_s`, in closed form. A
request that reaches the worker meanwhile cuts the leap to the step in progress (`cut_leap`).
"""

from __future__ import annotations

from typing import Any

from kvgym.engine.cache.radix import insert, lock, unlock
from kvgym.engine.pages import (
    RATIO_INIT,
    RATIO_MIN,
    RATIO_STEPS,
    RETRACT_STEPS,
    cacheable,
    computed,
    generated,
    page_ceil,
    path_node,
)
from kvgym.engine.serving.answers import end_request, send_first
from kvgym.engine.serving.queues import queue_push, run_append, run_push, run_remove
from kvgym.engine.state import DECODE, PREFILL, READY, Cache, Sim
from kvgym.jit.door import i64, njit
from kvgym.types import DONE


@njit()
def shortfall(c: Cache, w: int, demand: int) -> int:
    """Tokens to evict so that `demand` tokens can be allocated (0: enough is free)."""
    missing = demand - c.workers[w].free
    if missing <= 0:
        return 0
    return demand if c.workers[w].evict_full == 1 else missing


@njit()
def alloc_prefill(c: Cache, x: Sim, w: int) -> None:
    """Set `need` for the batch: new tokens, and for pages above 1 one page per request."""
    worker, page = c.workers[w], c.options[0].page
    demand = i64(0)
    r = i64(worker.batch_head)
    while r >= 0:
        demand += x.live[r].extend + (page if page > 1 else 0)
        r = i64(x.live[r].next)
    worker.need = shortfall(c, w, demand)


@njit()
def take_prefill_pages(c: Cache, x: Sim, w: int) -> None:
    """Move the batch's pages from the pool to its requests."""
    worker, page = c.workers[w], c.options[0].page
    r = i64(worker.batch_head)
    while r >= 0:
        live = x.live[r]
        pages = page_ceil(i64(live.kv + live.extend), page) - page_ceil(i64(live.kv), page)
        worker.free -= pages
        worker.private += pages
        r = i64(live.next)
    if worker.free < 0:
        c.clock[0].error = w + 1


@njit()
def start_prefill(c: Cache, x: Sim, w: int) -> None:
    """Start the step, whose memory is there."""
    worker, o = c.workers[w], c.options[0]
    seconds = o.p0 + o.step_s
    r = i64(worker.batch_head)
    while r >= 0:
        live = x.live[r]
        n, cached = float(live.extend), float(live.kv)
        seconds += o.p_tok * n + o.p_quad * n * (cached + 0.5 * n) + o.p_kv * (cached + n)
        r = i64(live.next)
    if worker.mixed == 1:
        seconds += mixed_surcharge(c, x, w)
    worker.start_s = c.clock[0].now_s
    worker.due_s = worker.start_s + seconds / worker.speed
    worker.leap = 1
    worker.phase = PREFILL


@njit()
def mixed_surcharge(c: Cache, x: Sim, w: int) -> float:
    """Seconds that the running requests add to the prefill step in which they decode."""
    worker, o = c.workers[w], c.options[0]
    batch, tokens = float(worker.running), 0.0
    r = i64(worker.batch_head)
    while r >= 0:
        tokens += x.live[r].extend
        r = i64(x.live[r].next)
    alone = o.p0 + o.p_tok * tokens
    return (
        max(o.d0 + o.d_seq * batch, alone + o.p_tok * batch)
        - alone
        + (o.d_kvtok + o.mix_kvtok) * (worker.context + batch)
    )


@njit()
def checkpoint(c: Cache, x: Sim, hooks: Any, w: int, r: int, tokens: int, keep: bool) -> None:
    """Insert the first `tokens` computed tokens of request r into the cache; free the duplicates.

    With `keep` the request goes on and its lock moves to the end of what it inserted; without it everything that it
    holds is given back.
    """
    worker, live, page = c.workers[w], x.live[r], c.options[0].page
    size = cacheable(c, x, r, tokens)
    priority = i64(x.requests[r].priority)
    node = path_node(x, r, size)
    slot, present = insert(c, hooks, w, node, size, priority, i64(live.inserted), keep)
    old, owned = i64(live.slot), i64(live.prefix)
    if keep:
        lock(c, hooks, w, i64(c.slots[slot].parent) if present < size else slot, old)
        live.slot, live.prefix = slot, size
    prompt = cacheable(c, x, r, i64(x.requests[r].prompt_tokens))
    if 0 < prompt < size:
        insert(c, hooks, w, i64(x.requests[r].prompt_node), prompt, priority + 1, prompt, False)
    live.inserted = max(i64(live.inserted), size)
    worker.private -= size - owned
    worker.free += present - owned
    if not keep:
        tail = page_ceil(tokens, page) - size
        worker.private -= tail
        worker.free += tail
        unlock(c, hooks, w, old)


@njit()
def finish_prefill(c: Cache, x: Sim, hooks: Any, w: int) -> None:
    """The prefill step has ended: insert, sample the first token, join the running batch or finish.

    Requests that have decoded in it come after those that it prefilled, also in the running batch that they form.
    """
    worker = c.workers[w]
    tails, last, decoding = i64(-1), i64(-1), i64(0)
    if worker.mixed == 1:
        take_decode_pages(c, x, w, 1)
        tails, last, decoding = i64(worker.run_head), i64(worker.run_tail), i64(worker.running)
        worker.decoded += 1
        worker.context += decoding
        worker.run_head = worker.run_tail = -1
        worker.running = 0
    r = i64(worker.batch_head)
    worker.batch_head = worker.batch_tail = -1
    worker.batch = 0
    while r >= 0:
        live = x.live[r]
        following = i64(live.next)
        live.kv += live.extend
        if live.kv < live.goal:
            checkpoint(c, x, hooks, w, r, i64(live.kv), True)
            worker.full = 0
        else:
            live.out += 1
            if live.first_s < 0:
                send_first(c, x, r)
            if live.out >= live.target:
                checkpoint(c, x, hooks, w, r, i64(live.kv), False)
                end_request(c, x, r, DONE)
                worker.full = 0
            else:
                checkpoint(c, x, hooks, w, r, i64(live.kv), True)
                live.join = worker.decoded
                worker.context += live.kv
                run_push(c, x, w, r)
        r = following
    worker.steps += 1
    if worker.mixed == 1:
        worker.mixed = 0
        run_append(c, x, w, tails, last, decoding)
        finish_answers(c, x, hooks, w, tails)


@njit()
def boundary_demand(c: Cache, x: Sim, w: int) -> int:
    """Tokens without which the next decode step can't be made: a page for each request at a page boundary."""
    page = c.options[0].page
    if page == 1:
        return i64(c.workers[w].running)
    demand = i64(0)
    r = i64(c.workers[w].run_head)
    while r >= 0:
        demand += page if computed(c, x, w, r) % page == 0 else 0
        r = i64(x.live[r].next)
    return demand


@njit()
def alloc_decode(c: Cache, x: Sim, w: int) -> None:
    """Set `need` for one decode step: a page per running request."""
    c.workers[w].need = shortfall(c, w, c.workers[w].running * c.options[0].page)


@njit()
def retract_one(c: Cache, x: Sim, hooks: Any, w: int) -> None:
    """Send the running request with the fewest generated tokens (longest prompt, last of equals) back to the queue."""
    worker = c.workers[w]
    victim = r = i64(worker.run_head)
    while r >= 0:
        a, b = generated(c, x, w, r), generated(c, x, w, victim)
        if a < b or (a == b and x.requests[r].prompt_tokens >= x.requests[victim].prompt_tokens):
            victim = r
        r = i64(x.live[r].next)
    live = x.live[victim]
    give_back(c, x, hooks, w, victim)
    live.out = generated(c, x, w, victim)
    live.goal = x.requests[victim].prompt_tokens + live.out
    live.prefix = live.inserted = live.kv = 0
    live.retractions += 1
    worker.retractions += 1
    worker.retracted = 1
    worker.full = 0
    queue_push(c, x, w, victim, c.clock[0].now_s)


@njit()
def give_back(c: Cache, x: Sim, hooks: Any, w: int, r: int) -> None:
    """Take request r out of the running batch and free what it holds, without inserting it."""
    worker, live = c.workers[w], x.live[r]
    kv = computed(c, x, w, r)
    run_remove(c, x, w, r)
    pages = page_ceil(kv, c.options[0].page) - live.prefix
    worker.private -= pages
    worker.free += pages
    worker.context -= kv
    unlock(c, hooks, w, i64(live.slot))


@njit()
def estimate_ratio(c: Cache, x: Sim, w: int) -> None:
    """Set the new-token ratio after a retraction."""
    worker = c.workers[w]
    done, asked = 0.0, 1.0
    r = i64(worker.run_head)
    while r >= 0:
        done += generated(c, x, w, r) + RETRACT_STEPS
        asked += x.live[r].asked
        r = i64(x.live[r].next)
    worker.ratio = min(1.0, done / asked)


@njit()
def step_seconds(c: Cache, w: int, steps: int) -> float:
    """Seconds that the first `steps` decode steps of the running batch take, in closed form."""
    worker, o = c.workers[w], c.options[0]
    n, batch = float(steps), float(worker.running)
    one = o.d0 + o.step_s + o.d_seq * batch + o.d_kvtok * (worker.context + batch)
    return (n * one + 0.5 * n * (n - 1.0) * batch * o.d_kvtok) / worker.speed


@njit()
def longest_leap(c: Cache, x: Sim, w: int) -> int:
    """Decode steps until a request finishes or memory could run short."""
    worker, page = c.workers[w], c.options[0].page
    if worker.first_finish < 0:
        r = i64(worker.run_head)
        first = i64(x.live[r].target - x.live[r].out) + x.live[r].join
        while r >= 0:
            first = min(first, i64(x.live[r].target - x.live[r].out) + x.live[r].join)
            r = i64(x.live[r].next)
        worker.first_finish = first
    steps = 1 + page * (worker.free // (worker.running * page) - 1)
    return max(min(steps, worker.first_finish - worker.decoded), 1)


@njit()
def start_decode(c: Cache, x: Sim, hooks: Any, w: int) -> None:
    """Start a decode step or leap; with too little memory retract one request and leave `need` for the next try.

    A single request always fits: nothing else is locked, and its answer was cut to the pool when it was routed.
    """
    worker, clock = c.workers[w], c.clock[0]
    if worker.free < boundary_demand(c, x, w):
        if worker.running == 1:
            clock.error, worker.phase = w + 1, READY
            return
        retract_one(c, x, hooks, w)
        estimate_ratio(c, x, w)
        worker.need = shortfall(c, w, worker.running * max(RETRACT_STEPS, c.options[0].page))
        return
    worker.leap = longest_leap(c, x, w)
    worker.start_s = clock.now_s
    worker.due_s = worker.start_s + step_seconds(c, w, i64(worker.leap))
    worker.phase = DECODE
    if worker.queued > 0 and worker.full == 0:
        cut_leap(c, w, x.live[worker.queue_head].enter_s)


@njit()
def cut_leap(c: Cache, w: int, time_s: float) -> None:
    """Shorten the running leap so that it ends with the step that is in progress at `time_s`."""
    worker = c.workers[w]
    if worker.leap <= 1 or time_s >= worker.due_s:
        return
    low, high = i64(1), i64(worker.leap)
    while low < high:
        middle = (low + high) // 2
        if worker.start_s + step_seconds(c, w, middle) >= time_s:
            high = middle
        else:
            low = middle + 1
    worker.leap = low
    worker.due_s = worker.start_s + step_seconds(c, w, low)


@njit()
def take_decode_pages(c: Cache, x: Sim, w: int, steps: int) -> None:
    """Move the pages of `steps` decode steps from the pool to the running requests."""
    worker, page = c.workers[w], c.options[0].page
    taken = worker.running * steps
    if page > 1:
        taken = i64(0)
        r = i64(worker.run_head)
        while r >= 0:
            kv = computed(c, x, w, r)
            taken += page_ceil(kv + steps, page) - page_ceil(kv, page)
            r = i64(x.live[r].next)
    worker.free -= taken
    worker.private += taken


@njit()
def finish_decode(c: Cache, x: Sim, hooks: Any, w: int) -> None:
    """The decode leap has ended: count its steps, finish the requests that are complete."""
    worker = c.workers[w]
    steps = i64(worker.leap)
    take_decode_pages(c, x, w, steps)
    worker.decoded += steps
    worker.context += steps * worker.running
    worker.steps += steps
    decays = steps - worker.retracted
    worker.retracted = 0
    if decays > 0:
        worker.ratio = max(worker.ratio - decays * (RATIO_INIT - RATIO_MIN) / RATIO_STEPS, RATIO_MIN)
    if worker.decoded >= worker.first_finish:
        finish_answers(c, x, hooks, w, i64(worker.run_head))


@njit()
def finish_answers(c: Cache, x: Sim, hooks: Any, w: int, r: int) -> None:
    """End the running requests that are complete, from request r on."""
    worker = c.workers[w]
    while r >= 0:
        live = x.live[r]
        following = i64(live.next)
        if generated(c, x, w, r) >= live.target:
            kv = computed(c, x, w, r)
            live.out = live.target
            run_remove(c, x, w, r)
            worker.context -= kv
            checkpoint(c, x, hooks, w, r, kv, False)
            end_request(c, x, r, DONE)
            worker.full = 0
        r = following
