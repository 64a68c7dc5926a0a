"""Requests in a worker's waiting queue, prefill batch and running batch: doubly linked lists through LIVE."""

from __future__ import annotations

from kvgym.engine.state import Cache, Sim
from kvgym.jit.door import i64, njit


@njit()
def queue_push(c: Cache, x: Sim, w: int, r: int, time_s: float) -> None:
    """Put request r, which reaches worker w at `time_s`, behind those of its queue that do so no later."""
    before = i64(c.workers[w].queue_tail)
    while before >= 0 and x.live[before].enter_s > time_s:
        before = i64(x.live[before].prev)
    worker, live = c.workers[w], x.live[r]
    live.prev = before
    live.next = worker.queue_head if before < 0 else x.live[before].next
    if before < 0:
        worker.queue_head = r
    else:
        x.live[before].next = r
    if live.next < 0:
        worker.queue_tail = r
    else:
        x.live[live.next].prev = r
    worker.queued += 1


@njit()
def queue_push_first(c: Cache, x: Sim, w: int, r: int) -> None:
    """Put request r at the head of worker w's queue."""
    worker, live = c.workers[w], x.live[r]
    live.prev, live.next = -1, worker.queue_head
    if live.next < 0:
        worker.queue_tail = r
    else:
        x.live[live.next].prev = r
    worker.queue_head = r
    worker.queued += 1


@njit()
def queue_pop(c: Cache, x: Sim, w: int) -> int:
    """Take the first request off the waiting queue."""
    worker = c.workers[w]
    r = i64(worker.queue_head)
    worker.queue_head = x.live[r].next
    if worker.queue_head < 0:
        worker.queue_tail = -1
    else:
        x.live[worker.queue_head].prev = -1
    worker.queued -= 1
    return r


@njit()
def batch_push(c: Cache, x: Sim, w: int, r: int) -> None:
    """Append request r to the prefill batch in the making."""
    worker = c.workers[w]
    x.live[r].next, x.live[r].prev = -1, worker.batch_tail
    if worker.batch_tail >= 0:
        x.live[worker.batch_tail].next = r
    else:
        worker.batch_head = r
    worker.batch_tail = r
    worker.batch += 1


@njit()
def run_push(c: Cache, x: Sim, w: int, r: int) -> None:
    """Append request r to the running (decoding) batch."""
    worker = c.workers[w]
    x.live[r].next, x.live[r].prev = -1, worker.run_tail
    if worker.run_tail >= 0:
        x.live[worker.run_tail].next = r
    else:
        worker.run_head = r
    worker.run_tail = r
    worker.running += 1
    worker.first_finish = -1


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
    worker, live = c.workers[w], x.live[r]
    if live.prev >= 0:
        x.live[live.prev].next = live.next
    else:
        worker.run_head = live.next
    if live.next >= 0:
        x.live[live.next].prev = live.prev
    else:
        worker.run_tail = live.prev
    worker.running -= 1
    worker.first_finish = -1
