"""An array keeps each worker's evictable leaves; its first `unmarked` entries are the candidates.

Adding appends, removing moves the last entry into the gap: the order depends on the operations alone, so the same seed
and operations pick the same leaves anywhere.
"""

from __future__ import annotations

from kvgym.engine.cache.radix import remove_leaf
from kvgym.engine.state import Cache
from kvgym.jit.door import i64, njit


@njit()
def place(c: Cache, w: int, i: int, s: int) -> None:
    """Put slot s at position i."""
    c.order[w, i] = s
    c.slots[s].pos = i


@njit()
def add(c: Cache, w: int, s: int, candidate: bool) -> None:
    """Add leaf s, to the candidates or to the rest."""
    worker = c.workers[w]
    i = i64(worker.leaves)
    worker.leaves += 1
    if candidate:
        j = i64(worker.unmarked)
        worker.unmarked += 1
        if j != i:
            place(c, w, i, i64(c.order[w, j]))
            i = j
    place(c, w, i, s)


@njit()
def discard(c: Cache, w: int, s: int) -> None:
    """Take leaf s out."""
    worker = c.workers[w]
    i = i64(c.slots[s].pos)
    c.slots[s].pos = -1
    if i < worker.unmarked:
        worker.unmarked -= 1
        j = i64(worker.unmarked)
        if i != j:
            place(c, w, i, i64(c.order[w, j]))
        i = j
    worker.leaves -= 1
    j = i64(worker.leaves)
    if i != j:
        place(c, w, i, i64(c.order[w, j]))


@njit()
def take(c: Cache, w: int, s: int) -> int:
    """Evict leaf s; its parent is a candidate if it is a leaf now. Return the tokens freed."""
    freed = i64(c.slots[s].d1 - c.slots[s].d0)
    discard(c, w, s)
    parent = remove_leaf(c, w, s)
    if parent >= 0:
        add(c, w, parent, True)
    return freed


@njit()
def exclude(c: Cache, w: int, s: int) -> None:
    """Move candidate s to the rest."""
    worker = c.workers[w]
    i = i64(c.slots[s].pos)
    worker.unmarked -= 1
    j = i64(worker.unmarked)
    if i != j:
        place(c, w, i, i64(c.order[w, j]))
        place(c, w, j, s)


@njit()
def all_candidates(c: Cache, w: int) -> None:
    """Make every evictable leaf a candidate again (a phase has ended); constant time."""
    c.workers[w].unmarked = c.workers[w].leaves
