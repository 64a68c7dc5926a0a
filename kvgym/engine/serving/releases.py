"""Requests reach the router by arrival, follow-up turn, the closed loop's backlog, retry or answer.

Static arrivals are a sorted list with a cursor; everything else goes through a binary heap ordered by LIVE.due_s. A
request is in it at most once. Also keeps the integrals that rewards are made of.
"""

from __future__ import annotations

from kvgym.engine.serving.scrape import scrape
from kvgym.engine.state import Cache, Sim
from kvgym.jit.door import i64, njit
from kvgym.types import FAILED, PENDING


@njit()
def earlier(x: Sim, a: int, b: int) -> bool:
    """Whether request a is due before request b; at equal times answers go first, then who arrived first."""
    one, other = x.live[a], x.live[b]
    if one.due_s != other.due_s:
        return one.due_s < other.due_s
    if (one.status == PENDING) != (other.status == PENDING):
        return one.status != PENDING
    if one.release_s != other.release_s:
        return one.release_s < other.release_s
    return a < b


@njit()
def sift_up(x: Sim, i: int, r: int) -> None:
    """Put request r at heap position i or nearer to the top."""
    heap = x.heap
    while i > 0:
        up = (i - 1) >> 1
        if not earlier(x, r, i64(heap[up])):
            break
        heap[i] = heap[up]
        i = up
    heap[i] = r


@njit()
def sift_down(c: Cache, x: Sim, i: int, r: int) -> None:
    """Put request r at heap position i or farther from the top."""
    heap, n = x.heap, c.clock[0].heap
    while True:
        down = 2 * i + 1
        if down >= n:
            break
        if down + 1 < n and earlier(x, i64(heap[down + 1]), i64(heap[down])):
            down += 1
        if not earlier(x, i64(heap[down]), r):
            break
        heap[i] = heap[down]
        i = down
    heap[i] = r


@njit()
def heap_push(c: Cache, x: Sim, r: int, due_s: float) -> None:
    """Let request r, which is not in the heap, be at the router at `due_s`."""
    clock = c.clock[0]
    x.live[r].due_s = due_s
    clock.heap += 1
    sift_up(x, clock.heap - 1, r)


@njit()
def heap_pop(c: Cache, x: Sim) -> int:
    """Take the request that is due first off the heap."""
    clock, top = c.clock[0], i64(x.heap[0])
    clock.heap -= 1
    sift_down(c, x, 0, i64(x.heap[clock.heap]))
    return top


@njit()
def heap_remove(c: Cache, x: Sim, r: int) -> None:
    """Take request r out of the heap, wherever it is; linear time."""
    clock, heap, i = c.clock[0], x.heap, 0
    while heap[i] != r:
        i += 1
    clock.heap -= 1
    last = i64(heap[clock.heap])
    if i == clock.heap:
        return
    if i > 0 and earlier(x, last, i64(heap[(i - 1) >> 1])):
        sift_up(x, i, last)
    else:
        sift_down(c, x, i, last)


@njit()
def next_release(c: Cache, x: Sim) -> int:
    """Return the request that is at the router next, or -1; it is not taken."""
    clock = c.clock[0]
    static = i64(x.arrivals[clock.cursor]) if clock.cursor < len(x.arrivals) else -1
    if clock.heap == 0:
        return static
    dynamic = i64(x.heap[0])
    if static >= 0 and earlier(x, static, dynamic):
        return static
    return dynamic


@njit()
def take_release(c: Cache, x: Sim) -> int:
    """Take the request that `next_release` names."""
    r = next_release(c, x)
    if c.clock[0].heap > 0 and x.heap[0] == r:
        return heap_pop(c, x)
    c.clock[0].cursor += 1
    return r


@njit()
def log_end(c: Cache, x: Sim, r: int) -> None:
    """Request r has ended: it is the next record."""
    clock = c.clock[0]
    x.done[clock.done] = r
    clock.done += 1


@njit()
def abandon(c: Cache, x: Sim, r: int, now_s: float) -> None:
    """End request r and all later turns of its session, none of them sent, as FAILED; r = -1: there are none."""
    while r >= 0:
        live = x.live[r]
        live.release_s, live.finish_s, live.status = now_s, now_s, FAILED
        log_end(c, x, r)
        r = i64(x.requests[r].next)


@njit()
def release_after(c: Cache, x: Sim, r: int, now_s: float) -> None:
    """Request r has ended: release its follow-up turn or, in a closed loop, the next session of the backlog.

    A session ends with a failed request: nobody has the answer that its later turns continue.
    """
    clock = c.clock[0]
    follower = i64(x.requests[r].next)
    if x.live[r].status == FAILED:
        abandon(c, x, follower, now_s)
        follower = i64(-1)
    if follower < 0:
        if c.options[0].clients == 0 or clock.backlog >= len(x.heads):
            return
        follower = i64(x.heads[clock.backlog])
        clock.backlog += 1
    x.live[follower].release_s = now_s + x.requests[follower].think_s
    heap_push(c, x, follower, x.live[follower].release_s)


@njit()
def move_clock(c: Cache, x: Sim, now_s: float) -> None:
    """Advance time to `now_s` and the integrals with it; the engines are scraped on the way."""
    clock = c.clock[0]
    if clock.scrape_due_s <= now_s:
        scrape(c, x, now_s)
    dt = now_s - clock.now_s
    clock.area_s += dt * clock.in_system
    clock.ttft_area_s += dt * clock.no_first
    clock.now_s = now_s
