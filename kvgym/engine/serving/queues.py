"""Requests wait, are batched and run in doubly linked lists through LIVE, three for each worker."""

from __future__ import annotations

from kvgym.engine.state import Cache, Sim
from kvgym.jit.door import i64, njit


@njit()
def link(x: Sim, r: int, before: int, after: int) -> None:
    """Put request r between two neighbours; -1: there is none on that side. Heads and tails are the caller's."""
    x.live[r].prev, x.live[r].next = before, after
    if before >= 0:
        x.live[before].next = r
    if after >= 0:
        x.live[after].prev = r


@njit()
def unlink(x: Sim, r: int) -> tuple[int, int]:
    """Take request r out of its list; return the requests before and after it, -1 where there is none."""
    before, after = i64(x.live[r].prev), i64(x.live[r].next)
    if before >= 0:
        x.live[before].next = after
    if after >= 0:
        x.live[after].prev = before
    return before, after


@njit()
def queue_push(c: Cache, x: Sim, w: int, r: int, time_s: float) -> None:
    """Put request r, which reaches worker w at `time_s`, behind those of its queue that do so no later."""
    before = i64(c.workers[w].queue_tail)
    while before >= 0 and x.live[before].enter_s > time_s:
        before = i64(x.live[before].prev)
    queue_link(c, x, w, r, before)


@njit()
def queue_push_first(c: Cache, x: Sim, w: int, r: int) -> None:
    """Put request r at the head of worker w's queue."""
    queue_link(c, x, w, r, -1)


@njit()
def queue_link(c: Cache, x: Sim, w: int, r: int, before: int) -> None:
    """Put request r into worker w's queue behind request `before`; -1: at its head."""
    worker = c.workers[w]
    after = i64(worker.queue_head) if before < 0 else i64(x.live[before].next)
    link(x, r, before, after)
    if before < 0:
        worker.queue_head = r
    if after < 0:
        worker.queue_tail = r
    worker.queued += 1


@njit()
def queue_pop(c: Cache, x: Sim, w: int) -> int:
    """Take the first request off the waiting queue."""
    worker = c.workers[w]
    r = i64(worker.queue_head)
    _, worker.queue_head = unlink(x, r)
    if worker.queue_head < 0:
        worker.queue_tail = -1
    worker.queued -= 1
    return r


@njit()
def batch_push(c: Cache, x: Sim, w: int, r: int) -> None:
    """Append request r to the prefill batch in the making."""
    worker = c.workers[w]
    link(x, r, i64(worker.batch_tail), -1)
    if worker.batch_tail < 0:
        worker.batch_head = r
    worker.batch_tail = r
    worker.batch += 1


@njit()
def run_push(c: Cache, x: Sim, w: int, r: int) -> None:
    """Append request r to the running (decoding) batch."""
    x.live[r].next = -1
    run_append(c, x, w, r, r, 1)


@njit()
def run_append(c: Cache, x: Sim, w: int, first: int, last: int, count: int) -> None:
    """Append `count` linked requests, `first` to `last`, to the running batch."""
    worker = c.workers[w]
    x.live[first].prev = worker.run_tail
    if worker.run_tail >= 0:
        x.live[worker.run_tail].next = first
    else:
        worker.run_head = first
    worker.run_tail = last
    worker.running += count
    worker.first_finish = -1


@njit()
def run_remove(c: Cache, x: Sim, w: int, r: int) -> None:
    """Take request r out of the running batch."""
    worker = c.workers[w]
    before, after = unlink(x, r)
    if before < 0:
        worker.run_head = after
    if after < 0:
        worker.run_tail = before
    worker.running -= 1
    worker.first_finish = -1
