"""Compiled code checks the cache's invariants: a number per broken rule, 0 when all hold."""

from __future__ import annotations

import numpy as np

from kvgym.engine.cache.radix import lookup
from kvgym.engine.state import Cache
from kvgym.jit.door import i64, njit

RULES = {
    1: "free + evictable + protected + private = capacity",
    2: "no negative counter",
    3: "slot lengths are positive whole pages and the parent ends where the slot begins",
    4: "a slot is found under its key",
    5: "a parent's lock count is at least its child's",
    6: "the order holds exactly the evictable leaves, at their stated positions",
    7: "children counts agree",
    8: "resident tokens = evictable + protected",
    9: "the free list and the resident slots add up",
    10: "the free blocks of a vLLM worker are those that nobody holds, in one list",
}
"""What each number that `check` returns means."""


@njit()
def slot_rule(c: Cache, w: int, s: int) -> int:
    """Return the first rule that resident slot s of worker w breaks, or 0."""
    slot = c.slots[s]
    page = c.options[0].page
    parent = i64(slot.parent)
    size = i64(slot.d1 - slot.d0)
    if size <= 0 or size % page != 0 or c.slots[parent].d1 != slot.d0 or c.slots[parent].worker != w:
        return 3
    if not (c.nodes[slot.node].start < slot.d1 <= c.nodes[slot.node].end):
        return 3
    if lookup(c, w, i64(slot.first), i64(slot.d0)) != s:
        return 4
    if slot.lock < 0 or (parent != w and c.slots[parent].lock < slot.lock):
        return 5
    if (slot.children == 0 and slot.lock == 0) != (slot.pos >= 0):
        return 6
    if slot.pos >= 0 and (slot.pos >= c.workers[w].leaves or c.order[w, slot.pos] != s):
        return 6
    return 0


@njit()
def block_rule(c: Cache, w: int) -> int:
    """Return 10 if the free list of vLLM worker w is not what its counters say, or 0."""
    worker, page = c.workers[w], c.options[0].page
    free, before = i64(0), i64(-1)
    b = i64(worker.free_head)
    while b >= 0 and free * page <= worker.free:
        if c.blocks[b].ref != 0 or c.blocks[b].prev != before or c.blocks[b].worker != w:
            return 10
        free, before = free + 1, b
        b = i64(c.blocks[b].next)
    return 0 if free * page == worker.free and before == worker.free_tail else 10


@njit(allocates=True)
def check_worker(c: Cache, w: int) -> int:
    """Return the first rule that worker w breaks, or 0. Time: the table's length."""
    worker = c.workers[w]
    if worker.free + worker.evictable + worker.protected + worker.private != worker.capacity:
        return 1
    if min(worker.free, worker.evictable, worker.protected, worker.private, worker.leaves) < 0:
        return 2
    if worker.blocked == 1:
        return block_rule(c, w)
    children = np.zeros(len(c.slots), np.int32)
    evictable, protected, leaves = i64(0), i64(0), 0
    for i in range(len(c.table)):
        s = i64(c.table[i])
        if s < 0 or c.slots[s].worker != w:
            continue
        rule = slot_rule(c, w, s)
        if rule != 0:
            return rule
        slot = c.slots[s]
        children[slot.parent] += 1
        leaves += slot.pos >= 0
        if slot.lock == 0:
            evictable += slot.d1 - slot.d0
        else:
            protected += slot.d1 - slot.d0
    if leaves != worker.leaves:
        return 6
    for i in range(len(c.table)):
        s = i64(c.table[i])
        if s >= 0 and c.slots[s].worker == w and c.slots[s].children != children[s]:
            return 7
    if c.slots[w].children != children[w]:
        return 7
    return 8 if evictable != worker.evictable or protected != worker.protected else 0


@njit()
def check_all(c: Cache) -> tuple[int, int]:
    """Return (worker, rule) of the first broken invariant, or (-1, 0)."""
    resident = 0
    for i in range(len(c.table)):
        resident += c.table[i] >= 0
    if resident + c.clock[0].free_slots + len(c.workers) != len(c.slots):
        return 0, 9
    for w in range(len(c.workers)):
        rule = check_worker(c, w)
        if rule != 0:
            return w, rule
    return -1, 0


def first_broken(cache: Cache) -> tuple[int, int]:
    """`check_all` for callers in Python: without the JIT its hashes overflow, on purpose, and numpy would warn."""
    with np.errstate(over="ignore"):
        worker, rule = check_all(cache)
    return int(worker), int(rule)
