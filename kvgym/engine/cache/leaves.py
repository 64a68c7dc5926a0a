"""Somebody outside chooses among evictable leaves: by last access, marked as in RLT, children counted.

The hooks keep what an `EvictionDecision` tells; `offer` names some leaves and `take` evicts one. Each worker's order
is a heap by last access; a slot's key holds that tick above the number of children ever made below the slot.
"""

from __future__ import annotations

from kvgym.engine.cache.heap import pull, push, sift
from kvgym.engine.cache.marks import is_marked
from kvgym.engine.cache.policy import Policy, enter_hook, evict_hook, leave_hook, touch_hook
from kvgym.engine.cache.radix import (
    TOUCH_NEW,
    TOUCH_REST,
    TOUCH_SPLIT_INSERT,
    TOUCH_SPLIT_MATCH,
    drop_tail,
    remove_leaf,
)
from kvgym.engine.pages import page_ceil
from kvgym.engine.rng import below, next_word
from kvgym.engine.state import Cache
from kvgym.jit.door import i64, njit

BITS = 20
MOST_CHILDREN = (1 << BITS) - 1
"""Children are counted up to here."""


@njit()
def children_seen(c: Cache, s: int) -> int:
    """Children ever made below slot s."""
    return c.slots[s].key & MOST_CHILDREN


@njit()
def key_of(c: Cache, s: int) -> int:
    """Key of slot s as it is now: last access, children ever made."""
    return (c.slots[s].access << BITS) | children_seen(c, s)


@enter_hook
def enter(c: Cache, w: int, s: int) -> None:
    """A new leaf."""
    push(c, w, s, key_of(c, s))
    c.workers[w].unmarked += i64(not is_marked(c, w, s))


@leave_hook
def leave(c: Cache, w: int, s: int) -> None:
    """No leaf any more; its mark stays."""
    pull(c, w, s)
    c.workers[w].unmarked -= i64(not is_marked(c, w, s))


@touch_hook
def touch(c: Cache, w: int, s: int, kind: int) -> None:
    """Count children, mark what was accessed, keep the order."""
    slot = c.slots[s]
    if kind == TOUCH_NEW:
        slot.key = 0
        if slot.parent != w and children_seen(c, i64(slot.parent)) < MOST_CHILDREN:
            c.slots[i64(slot.parent)].key += 1
    elif kind == TOUCH_SPLIT_MATCH or kind == TOUCH_SPLIT_INSERT:
        slot.key = 1
    if kind != TOUCH_REST and not is_marked(c, w, s):
        slot.mark, slot.epoch = slot.d0, c.workers[w].epoch
        c.workers[w].unmarked -= i64(slot.pos >= 0)
    if slot.pos >= 0:
        slot.key = key_of(c, s)
        sift(c, w, i64(slot.pos))


@njit()
def take(c: Cache, w: int, s: int, tokens: int) -> int:
    """Evict the last `tokens` tokens of leaf s, rounded up to pages, or all of it (`tokens` 0); return how many."""
    size = i64(c.slots[s].d1 - c.slots[s].d0)
    part = min(page_ceil(tokens, c.options[0].page), size) if tokens > 0 else size
    if part < size:
        drop_tail(c, w, s, part)
        return part
    leave(c, w, s)
    parent = remove_leaf(c, w, s)
    if parent >= 0:
        enter(c, w, parent)
    return size


@njit()
def offer(c: Cache, w: int, recent: int, random: int) -> int:
    """Write leaves of worker w to the upper half of c.scratch; return how many.

    First the `recent` least recently accessed ones, in that order, then `random` drawn uniformly among the others. A
    phase without an unmarked leaf ends before. Time: as many steps as leaves are offered.
    """
    worker, row, half = c.workers[w], c.order[w], len(c.scratch) // 2
    if worker.unmarked == 0:
        worker.epoch += 1
        worker.unmarked = worker.leaves
    first = min(i64(recent), i64(worker.leaves))
    for i in range(first):
        s = i64(row[0])
        c.scratch[half + i] = s
        pull(c, w, s)
    left = i64(worker.leaves)
    more = min(i64(random), left)
    for i in range(more):
        c.rng[w], bits = next_word(c.rng[w])
        j = i + below(bits, left - i)
        row[i], row[j] = row[j], row[i]
        c.scratch[i] = j
        c.scratch[half + first + i] = row[i]
    for i in range(more - 1, -1, -1):
        j = i64(c.scratch[i])
        row[i], row[j] = row[j], row[i]
    for i in range(first):
        s = i64(c.scratch[half + i])
        push(c, w, s, key_of(c, s))
    return first + more


@evict_hook
def evict(c: Cache, w: int, tokens: int) -> int:
    """Where nobody is asked: whole leaves, least recently accessed first."""
    freed = i64(0)
    while freed < tokens and c.workers[w].leaves > 0:
        freed += take(c, w, i64(c.order[w, 0]), 0)
    return freed


POLICY = Policy(enter, leave, touch, evict)
