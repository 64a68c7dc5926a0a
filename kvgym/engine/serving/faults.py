"""Workers join, fail and come back; each change touches requests, cache and the router's view.

A failure is two changes. At STOP the worker dies: its step in progress is void, nothing happens on it any more, and the
router does not know; it sees the worker as it was, and may send to it. At NOTICE (`detect_s` later, or when the worker
is back if that is earlier) it is known: the cache is gone, and every request that the worker had, or that was sent to
it since, goes back to the router (`answers.lose`). Answers that left the worker before STOP still reach their clients.
START brings a worker up, idle and with an empty cache; the router sees it at once.
"""

from __future__ import annotations

import numpy as np

from kvgym.engine.cache.blocks import clear_blocks, give_row
from kvgym.engine.cache.radix import give_slot, table_remove
from kvgym.engine.pages import RATIO_INIT
from kvgym.engine.serving.answers import lose
from kvgym.engine.serving.batches import cut_leap
from kvgym.engine.serving.releases import move_clock
from kvgym.engine.state import DECODE, DOWN, IDLE, NOTICE, PREFILL, STOP, Cache, Sim
from kvgym.jit.door import i64, njit


@njit()
def stop(c: Cache, w: int) -> None:
    """Worker w dies; what it has worked on so far counts as busy, whole decode steps as steps."""
    worker, clock = c.workers[w], c.clock[0]
    if worker.phase == PREFILL or worker.phase == DECODE:
        worker.busy_s += clock.now_s - worker.start_s
        clock.busiest_s = max(clock.busiest_s, worker.busy_s)
    if worker.phase == DECODE:
        cut_leap(c, w, clock.now_s)
        worker.steps += worker.leap if worker.due_s <= clock.now_s else worker.leap - 1
    worker.phase = DOWN
    worker.due_s = np.inf


@njit()
def lose_all(c: Cache, x: Sim, w: int) -> None:
    """Every request on worker w is lost: the running ones first, then the prefill batch, then the queue."""
    worker = c.workers[w]
    for part in range(4):
        if part == 0:
            r = i64(worker.run_head)
        elif part == 1:
            r = i64(worker.batch_head)
        elif part == 2:
            r = i64(worker.chunked)  # between two of its chunks it is in no list
        else:
            r = i64(worker.queue_head)
        while r >= 0:
            following = i64(-1) if part == 2 else i64(x.live[r].next)
            if part == 1 and r == worker.chunked:
                worker.chunked = -1
            if x.live[r].row >= 0:
                give_row(c, x, r)
            lose(c, x, r)
            r = following


@njit()
def clear(c: Cache, w: int) -> None:
    """Empty worker w: its slots are free, its pool whole, its lists, order and policy memory empty."""
    i = 0
    while i < len(c.table):
        s = i64(c.table[i])
        if s >= 0 and c.slots[s].worker == w:
            table_remove(c, s)  # may move another slot to position i
            c.slots[s].pos = -1
            give_slot(c, s)
        else:
            i += 1
    c.slots[w].children = 0
    worker = c.workers[w]
    if worker.blocked == 1:
        clear_blocks(c, w)
    worker.free = worker.capacity
    worker.evictable = worker.protected = worker.private = worker.context = worker.need = worker.marked = 0
    worker.leaves = worker.unmarked = worker.queued = worker.batch = worker.running = 0
    worker.retracted = worker.full = worker.leap = worker.mixed = 0
    worker.queue_head = worker.queue_tail = worker.batch_head = worker.batch_tail = -1
    worker.run_head = worker.run_tail = worker.chunked = worker.first_finish = -1
    worker.epoch += 1
    worker.ratio = RATIO_INIT
    c.memory[w, c.options[0].constants :] = 0.0


@njit()
def apply_change(c: Cache, x: Sim) -> int:
    """Move the clock to the next change of the fleet and make it; return its worker."""
    clock = c.clock[0]
    change = x.changes[clock.change]
    w = i64(change.worker)
    worker = c.workers[w]
    move_clock(c, x, change.time_s)
    clock.change += 1
    clock.change_s = x.changes[clock.change].time_s if clock.change < len(x.changes) else np.inf
    if change.kind == STOP:
        stop(c, w)
    elif change.kind == NOTICE:
        worker.visible = 0
        clock.visible -= 1
        worker.incarnation += 1
        lose_all(c, x, w)
        clear(c, w)
    else:
        worker.phase = IDLE
        worker.visible = 1
        clock.visible += 1
    return w
