"""Clients see first token and end of their requests a network delay after the worker, and lost attempts.

The integrals in CLOCK count what clients see. A request is in the system from its arrival at the router until its end
has reached the client, and without a first token until that has reached it.

A request that is lost with its worker forgets hit, admission, first token and what it has generated; its arrival stays,
so TTFT and latency go on counting. A stream that had begun is void: the time since its first token is added to the
integral at the loss, so that the integrals end as the sums of TTFT and latency all the same. A failed request never
had a first token and counts in both integrals until it has failed.
"""

from __future__ import annotations

import numpy as np

from kvgym.engine.serving.alone import service_part
from kvgym.engine.serving.releases import heap_push, heap_remove, log_end, release_after
from kvgym.engine.state import START, STREAMING, UNSEEN, WAITING, Cache, Sim
from kvgym.jit.door import i64, njit
from kvgym.types import DONE, FAILED, PENDING


@njit()
def network_delay(x: Sim, r: int, w: int) -> float:
    """Seconds one way between the client of request r and worker w; one row of delays holds for every region."""
    rows = len(x.network)
    return x.network[min(i64(x.requests[r].region), rows - 1), w] if rows > 0 else 0.0


@njit()
def see_first(c: Cache, x: Sim, r: int) -> None:
    """The client of request r sees its first token."""
    x.live[r].stage = STREAMING
    c.clock[0].no_first -= 1


@njit()
def send_first(c: Cache, x: Sim, r: int) -> None:
    """The worker has made the first token of request r."""
    live = x.live[r]
    live.first_s = c.clock[0].now_s + live.net_s
    if live.net_s > 0.0:
        heap_push(c, x, r, live.first_s)
    else:
        see_first(c, x, r)


@njit()
def close(c: Cache, x: Sim, r: int) -> None:
    """Request r, whose status is final, is out of the system: log it and release what waits for it."""
    clock = c.clock[0]
    live = x.live[r]
    if live.stage == WAITING:
        clock.no_first -= 1
    clock.in_system -= 1
    if live.status == DONE:
        worker = c.workers[i64(live.worker)]
        prompt = i64(x.requests[r].prompt_tokens)
        worker.alone_s += service_part(c.options[0], prompt, i64(live.hit), i64(live.target)) / worker.speed
        clock.heaviest_s = max(clock.heaviest_s, worker.alone_s)
    log_end(c, x, r)
    release_after(c, x, r, clock.now_s)


@njit()
def count_inflight(c: Cache, x: Sim, r: int, change: int) -> None:
    """Request r is in flight to its worker from now on (`change` 1) or not any more (-1)."""
    w, router = i64(x.live[r].worker), i64(x.live[r].router)
    tokens = change * i64(x.requests[r].prompt_tokens)
    c.workers[w].inflight += change
    c.workers[w].inflight_tokens += tokens
    x.sent[router, 0, w] += change
    x.sent[router, 1, w] += tokens


@njit()
def end_request(c: Cache, x: Sim, r: int, status: int) -> None:
    """The worker has ended request r."""
    live = x.live[r]
    live.status, live.finish_s = status, c.clock[0].now_s + live.net_s
    if live.net_s <= 0.0:
        count_inflight(c, x, r, -1)
        close(c, x, r)
    elif live.stage == STREAMING:
        heap_push(c, x, r, live.finish_s)
    # else the first token is still on its way; when it is there `deliver` sends the end after it


@njit()
def deliver(c: Cache, x: Sim, r: int) -> None:
    """The first token or the end of request r reaches its client."""
    live = x.live[r]
    if live.stage == WAITING:
        see_first(c, x, r)
        if live.status < DONE:
            return
        if live.finish_s > c.clock[0].now_s:
            heap_push(c, x, r, live.finish_s)
            return
    count_inflight(c, x, r, -1)
    close(c, x, r)


@njit()
def fail(c: Cache, x: Sim, r: int) -> None:
    """Give up request r, which is at the router."""
    x.live[r].status, x.live[r].finish_s = FAILED, c.clock[0].now_s
    close(c, x, r)


@njit()
def lose(c: Cache, x: Sim, r: int) -> None:
    """Request r is lost with its worker: it goes back to the router, or fails when it has been sent often enough."""
    live, clock, options = x.live[r], c.clock[0], c.options[0]
    count_inflight(c, x, r, -1)
    if live.stage == STREAMING:
        clock.ttft_area_s += clock.now_s - live.first_s
        clock.no_first += 1
        live.stage = WAITING
    elif live.first_s >= 0.0:
        heap_remove(c, x, r)
    live.admitted_s = live.first_s = -1.0
    live.hit = live.prefix = live.inserted = live.kv = live.extend = live.out = live.blocks = live.hashed = 0
    live.status, live.slot = PENDING, -1
    if live.attempts <= options.retries:
        heap_push(c, x, r, clock.now_s + options.retry_s)
    else:
        fail(c, x, r)


@njit()
def next_start(c: Cache, x: Sim) -> float:
    """Time at which the next worker comes up; inf: none ever does."""
    for i in range(c.clock[0].change, len(x.changes)):
        if x.changes[i].kind == START:
            return x.changes[i].time_s
    return np.inf


@njit()
def arrive(c: Cache, x: Sim, r: int) -> None:
    """Request r is at the router: it becomes `pending`; without any worker it waits for the next one, or fails."""
    live, clock = x.live[r], c.clock[0]
    if live.stage == UNSEEN:
        live.stage = WAITING
        clock.in_system += 1
        clock.no_first += 1
    if clock.visible > 0:
        clock.pending = r
        return
    start_s = next_start(c, x)
    if start_s < np.inf:
        heap_push(c, x, r, start_s)
    else:
        fail(c, x, r)
