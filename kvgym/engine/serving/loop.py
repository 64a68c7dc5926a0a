"""The event loop runs all workers to the next decision and routes, in one fixed order of equal times.

Order of equal times: steps end, then the fleet changes (workers fail, join, recover), then answers reach their clients,
then requests arrive, then workers schedule. Among workers the lower index goes first; among requests that are back at
the router the one that arrived first.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from kvgym.engine.cache.integrity import check_all
from kvgym.engine.pages import clipped_new_tokens
from kvgym.engine.serving.answers import arrive, count_inflight, deliver, end_request, network_delay
from kvgym.engine.serving.batches import cut_leap, finish_decode, finish_prefill
from kvgym.engine.serving.faults import apply_change
from kvgym.engine.serving.queues import queue_push
from kvgym.engine.serving.releases import move_clock, next_release, take_release
from kvgym.engine.serving.scheduler import advance
from kvgym.engine.serving.vllm import end_step, plan_step
from kvgym.engine.state import BROKEN, DECIDE, DECODE, DOWN, EVICT, FINISHED, GROW, IDLE, PREFILL, READY, Cache, Sim
from kvgym.jit.door import i64, njit
from kvgym.types import PENDING, QUEUED, REJECTED


@njit()
def next_event(c: Cache) -> int:
    """Return the worker whose event is next (steps end before workers schedule at equal times), or -1."""
    workers = c.workers
    best, best_s, best_ready = -1, np.inf, False
    for w in range(len(workers)):
        due_s = workers[w].due_s
        if due_s < best_s or (due_s == best_s and best_ready and workers[w].phase != READY):
            best, best_s, best_ready = w, due_s, workers[w].phase == READY
    return best


@njit()
def most_slots(c: Cache, w: int) -> int:
    """Slots, and places for leaves, that the next event of worker w can take at most.

    A step can insert two slots and split two for each of its requests, and a pass splits one per admitted request.
    """
    worker, options = c.workers[w], c.options[0]
    return 8 + 4 * (i64(worker.batch) + worker.running + min(i64(worker.queued), options.chunk, options.max_running))


@njit()
def most_logged(c: Cache, w: int) -> int:
    """Entries of the log that the next event of worker w can make at most: each removal drops a page at least."""
    worker, page = c.workers[w], c.options[0].page
    if worker.blocked == 1:  # each block stored once and removed once
        return 2 * worker.capacity // page
    return most_slots(c, w) + (worker.evictable + worker.protected) // page


@njit()
def must_grow(c: Cache, w: int) -> bool:
    """Whether the next event of worker w could run out of slots, leaf places or, if it is logged, of log."""
    worker, most = c.workers[w], most_slots(c, w)
    if c.options[0].log == 1 and c.clock[0].logged + most_logged(c, w) > len(c.log):
        return True
    return most > c.clock[0].free_slots or worker.leaves + most > c.order.shape[1]


@njit()
def log_event(c: Cache, x: Sim, kind: int, w: int) -> None:
    """Add an entry to the ring buffer (only with the integrity check on)."""
    n = len(x.ring)
    i = i64(x.ring[n - 1].tokens) % (n - 1)
    x.ring[n - 1].tokens += 1
    entry = x.ring[i]
    entry.time_s, entry.kind, entry.worker, entry.tokens = c.clock[0].now_s, kind, w, c.workers[w].free


@njit()
def verify(c: Cache, x: Sim, kind: int, w: int) -> bool:
    """Log the event and check every invariant; False when one is broken."""
    log_event(c, x, kind, w)
    bad, _ = check_all(c)
    if bad >= 0 and c.clock[0].error == 0:
        c.clock[0].error = bad + 1
    return c.clock[0].error == 0


@njit()
def worker_event(c: Cache, x: Sim, hooks: Any, w: int) -> bool:
    """Process the event of worker w; return True when it pauses for an eviction."""
    worker, clock = c.workers[w], c.clock[0]
    phase = worker.phase
    if phase == PREFILL or phase == DECODE:
        worker.busy_s += worker.due_s - worker.start_s
        clock.busiest_s = max(clock.busiest_s, worker.busy_s)
        if worker.blocked == 1:
            end_step(c, x, w)
        elif phase == PREFILL:
            finish_prefill(c, x, hooks, w)
        else:
            finish_decode(c, x, hooks, w)
        worker.phase = READY
        return False
    if worker.blocked == 1:
        plan_step(c, x, w)
        return False
    return advance(c, x, hooks, w)


@njit()
def run(c: Cache, x: Sim, hooks: Any) -> int:
    """Process events until a request needs a route, an eviction needs a victim, or all is done."""
    clock, options = c.clock[0], c.options[0]
    if clock.pending >= 0:
        return DECIDE
    while True:
        w = clock.evict_worker
        if w < 0:
            w = next_event(c)
            r = next_release(c, x)
            if w < 0 and r < 0 and (clock.in_system == 0 or clock.change_s == np.inf):
                return FINISHED
            due_s = c.workers[w].due_s if w >= 0 else np.inf
            router_s = x.live[r].due_s if r >= 0 else np.inf
            first_s = min(router_s, clock.change_s)
            if first_s < due_s or (first_s == due_s and c.workers[w].phase == READY):
                if clock.change_s <= router_s:
                    w = apply_change(c, x)
                    if options.check == 1 and not verify(c, x, DOWN, w):
                        return BROKEN
                elif at_router(c, x):
                    return DECIDE
                continue
            move_clock(c, x, due_s)
        if must_grow(c, w):
            return GROW
        clock.evict_worker = -1
        kind = c.workers[w].phase
        paused = worker_event(c, x, hooks, w)
        if clock.error != 0 or (options.check == 1 and not verify(c, x, kind, w)):
            return BROKEN
        if paused:
            clock.evict_worker = w
            return EVICT


@njit()
def at_router(c: Cache, x: Sim) -> bool:
    """Take the request that is at the router next, on its way to a worker or back; True when it needs a route."""
    r = take_release(c, x)
    move_clock(c, x, x.live[r].due_s)
    if x.live[r].status == PENDING:
        arrive(c, x, r)
        return c.clock[0].pending >= 0
    deliver(c, x, r)
    return False


@njit()
def route(c: Cache, x: Sim, w: int, delay_s: float) -> None:
    """Send the pending request to worker w; a prompt that the worker can never hold ends as REJECTED.

    It is in flight from now on, and reaches the worker's queue after `delay_s` (the decision's own time), the request
    overhead and the network delay.
    """
    clock, worker = c.clock[0], c.workers[w]
    r = clock.pending
    clock.pending = -1
    live, request = x.live[r], x.requests[r]
    live.worker, live.status, live.slot = w, QUEUED, w
    live.goal = request.prompt_tokens
    live.attempts += 1
    live.asked = clipped_new_tokens(c, x, w, r)
    live.target = min(request.output_tokens, live.asked)
    count_inflight(c, x, r, 1)
    live.net_s = 0.0
    if live.asked < 1:
        end_request(c, x, r, REJECTED)
        return
    live.net_s = network_delay(x, r, w)
    live.enter_s = clock.now_s + delay_s + c.options[0].request_s + live.net_s
    queue_push(c, x, w, r, live.enter_s)
    if worker.phase == IDLE:
        worker.phase, worker.due_s = READY, live.enter_s
    elif worker.phase == READY:  # it may be waiting for a request whose decision took longer
        worker.due_s = min(worker.due_s, live.enter_s)
    elif worker.phase == DECODE and worker.full == 0:
        cut_leap(c, w, live.enter_s)


@njit()
def run_rule(c: Cache, x: Sim, hooks: Any, rule: int) -> int:
    """Run to the end with a compiled routing rule (0 round robin, 1 least in flight); for benchmarks and tests."""
    while True:
        code = run(c, x, hooks)
        if code != DECIDE:
            return code
        w = i64(c.clock[0].pending % len(c.workers))
        while c.workers[w].visible == 0:
            w = (w + 1) % len(c.workers)
        if rule == 1:
            for other in range(len(c.workers)):
                if c.workers[other].visible == 1 and c.workers[other].inflight < c.workers[w].inflight:
                    w = i64(other)
        route(c, x, w, 0.0)
