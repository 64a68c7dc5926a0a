"""Marking policies mark whole slots for a phase, and end it.

A slot's marked tokens are always its last ones (`mark` .. d1-1), because a tail that is marked can't be dropped.
"""

from __future__ import annotations

from kvgym.engine.cache import leaflist
from kvgym.engine.state import Cache
from kvgym.jit.door import i64, njit


@njit()
def is_marked(c: Cache, w: int, s: int) -> bool:
    """Whether slot s carries the mark of this phase."""
    return c.slots[s].epoch == c.workers[w].epoch and c.slots[s].mark < c.slots[s].d1


@njit()
def mark(c: Cache, w: int, s: int) -> None:
    """Mark slot s and count its tokens once; a leaf is no candidate any more."""
    slot, worker = c.slots[s], c.workers[w]
    if is_marked(c, w, s):
        return
    slot.mark, slot.epoch = slot.d0, worker.epoch
    worker.marked += i64(slot.d1 - slot.d0)
    if 0 <= slot.pos < worker.unmarked:
        leaflist.exclude(c, w, s)


@njit()
def end_phase(c: Cache, w: int) -> None:
    """Nothing is marked, every evictable leaf is a candidate; constant time."""
    c.workers[w].epoch += 1
    c.workers[w].marked = 0
    leaflist.all_candidates(c, w)


@njit()
def add_leaf(c: Cache, w: int, s: int) -> None:
    """Slot s has become an evictable leaf: a candidate unless it is marked."""
    leaflist.add(c, w, s, not is_marked(c, w, s))
