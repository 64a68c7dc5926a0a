"""When requests reach the router: recorded arrivals, follow-up turns, and the closed loop's backlog; and who is in it.

Static arrivals are a sorted list with a cursor; everything released by a completion goes through a binary heap ordered
by (time, request index). Also keeps the integrals that rewards are made of.
"""

from __future__ import annotations

from kvgym.jit import i64, njit
from kvgym.sim.state import Cache, Sim


@njit()
def earlier(x: Sim, a: int, b: int) -> bool:
    """Whether request a is released before request b."""
    ta, tb = x.live[a].release_s, x.live[b].release_s
    return ta < tb or (ta == tb and a < b)


@njit()
def heap_push(c: Cache, x: Sim, r: int) -> None:
    """Add request r (its release_s is set) to the release heap."""
    clock, heap = c.clock[0], x.heap
    i = clock.heap
    clock.heap += 1
    while i > 0:
        up = (i - 1) >> 1
        if not earlier(x, r, i64(heap[up])):
            break
        heap[i] = heap[up]
        i = up
    heap[i] = r


@njit()
def heap_pop(c: Cache, x: Sim) -> int:
    """Take the earliest request off the release heap."""
    clock, heap = c.clock[0], x.heap
    top = i64(heap[0])
    clock.heap -= 1
    n, r, i = clock.heap, i64(heap[clock.heap]), 0
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
    return top


@njit()
def next_release(c: Cache, x: Sim) -> int:
    """Return the request that reaches the router next, or -1; it is not taken."""
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
def release_after(c: Cache, x: Sim, r: int, now_s: float) -> None:
    """Request r has ended: release its follow-up turn or, in a closed loop, the next session of the backlog."""
    clock = c.clock[0]
    follower = i64(x.requests[r].next)
    if follower < 0:
        if c.options[0].clients == 0 or clock.backlog >= len(x.heads):
            return
        follower = i64(x.heads[clock.backlog])
        clock.backlog += 1
    x.live[follower].release_s = now_s + x.requests[follower].think_s
    heap_push(c, x, follower)


@njit()
def move_clock(c: Cache, now_s: float) -> None:
    """Advance time to `now_s` and the integrals with it."""
    clock = c.clock[0]
    dt = now_s - clock.now_s
    clock.area_s += dt * clock.in_system
    clock.ttft_area_s += dt * clock.no_first
    clock.now_s = now_s
