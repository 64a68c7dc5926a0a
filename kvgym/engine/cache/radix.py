"""One worker's radix cache matches, inserts, locks and evicts exactly as SGLang 0.5.23's RadixCache does.

A *slot* is one radix node: tokens d0 .. d1-1 of the path that leads to forest node `node`. Slots split only where a
match or an insert ends, as SGLang's nodes do, so node-wise policies evict the same runs. A prefix is named by
(forest node, tokens): the first `tokens` tokens of the node's path. Lengths are whole pages.

The contract, per function (w = worker, s = slot; "hooks" = the eviction policy's functions, see `policy`):

- `lookup`   reads only. Child of slot s that begins in forest node f at depth d, or -1.
- `match`    moves `access` of every slot on the path, splits the slot in which the match ends. Nothing need be locked.
             Returns the last matched slot; its d1 is the matched length. The unmatched rest of a split slot has been
             touched too.
- `insert`   like `match`, and grows `hits` and `priority`, and adds what is missing as one new slot. Needs three free
             slots. The caller owns the tokens: those beyond the returned slot's former path move from private to the
             tree, duplicates go back to the pool (`scheduler` does both).
- `lock`     adds one to every slot from s to the root: locked slots are protected and can't be evicted.
- `unlock`   the reverse; the caller must hold the lock.
- `remove_leaf`, `drop_tail` for policies only: s must be an evictable leaf (no children, no lock, not the root).
- `check`    reads only; returns 0 when free + resident + private = capacity, residency is prefix-closed and every
             counter agrees, else the number of the first broken rule.

Splits make the *upper* half a new slot (new `created` and `access`, same hits, priority and lock); the lower half keeps
its identity. Within one insert the lower half of a split is accessed first, then the upper half, then the new slot.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from kvgym.engine.state import Cache
from kvgym.jit.door import i64, njit
from kvgym.types import REMOVED, STORED

TOUCH_MATCH, TOUCH_INSERT, TOUCH_NEW, TOUCH_SPLIT_MATCH, TOUCH_SPLIT_INSERT, TOUCH_REST = 0, 1, 2, 3, 4, 5
"""What happened to the slot that a policy's `touch` is told of: passed whole by a match or an insert, made by an
insert, made as the upper half of a split, or left as the unmatched rest of a split (whose `access` has moved too)."""


@njit()
def bucket(table: np.ndarray, worker: int, node: int, depth: int) -> int:
    """Return the home position of a key in a hash table, whose length is a power of two."""
    x = np.uint64(node) * np.uint64(0x9E3779B97F4A7C15) ^ np.uint64(depth) * np.uint64(0xC2B2AE3D27D4EB4F)
    x ^= np.uint64(worker) * np.uint64(0x165667B19E3779F9)
    x ^= x >> np.uint64(29)
    x *= np.uint64(0xBF58476D1CE4E5B9)
    x ^= x >> np.uint64(32)
    return i64(x & np.uint64(len(table) - 1))


@njit()
def lookup(c: Cache, worker: int, first: int, d0: int) -> int:
    """Return the slot of `worker` that begins in forest node `first` at depth `d0`, or -1."""
    mask = len(c.table) - 1
    i = bucket(c.table, worker, first, d0)
    while True:
        s = i64(c.table[i])
        if s < 0:
            return -1
        slot = c.slots[s]
        if slot.first == first and slot.d0 == d0 and slot.worker == worker:
            return s
        i = (i + 1) & mask


@njit()
def table_add(c: Cache, s: int) -> None:
    """Enter slot s under its key (worker, first, d0), which must be absent."""
    mask = len(c.table) - 1
    slot = c.slots[s]
    i = bucket(c.table, slot.worker, slot.first, slot.d0)
    while c.table[i] >= 0:
        i = (i + 1) & mask
    c.table[i] = s


@njit()
def table_find(c: Cache, s: int) -> int:
    """Return the table position that holds slot s."""
    mask = len(c.table) - 1
    slot = c.slots[s]
    i = bucket(c.table, slot.worker, slot.first, slot.d0)
    while c.table[i] != s:
        i = (i + 1) & mask
    return i


@njit()
def table_remove(c: Cache, s: int) -> None:
    """Remove slot s; later entries of the probe chain move up, so no tombstones are left."""
    mask = len(c.table) - 1
    hole = table_find(c, s)
    i = hole
    while True:
        i = (i + 1) & mask
        other = i64(c.table[i])
        if other < 0:
            break
        slot = c.slots[other]
        home = bucket(c.table, slot.worker, slot.first, slot.d0)
        if ((i - home) & mask) >= ((i - hole) & mask):
            c.table[hole] = other
            hole = i
    c.table[hole] = -1


@njit()
def take_slot(c: Cache) -> int:
    """Take a slot from the free list (the caller has made sure that there is one)."""
    clock = c.clock[0]
    s = clock.free_slot
    clock.free_slot = c.slots[s].parent
    clock.free_slots -= 1
    return s


@njit()
def give_slot(c: Cache, s: int) -> None:
    """Put slot s, which is in no table and no order, on the free list."""
    clock = c.clock[0]
    c.slots[s].parent = clock.free_slot
    clock.free_slot = s
    clock.free_slots += 1


@njit()
def note(c: Cache, kind: int, s: int, first: int, last: int) -> None:
    """Log that tokens `first` .. `last` - 1 of slot s were stored or removed; `cluster.must_grow` sees to room."""
    if c.options[0].log == 0:
        return
    clock, slot = c.clock[0], c.slots[s]
    row = c.log[clock.logged]
    clock.logged += 1
    row.time_s, row.worker, row.incarnation = clock.now_s, slot.worker, c.workers[slot.worker].incarnation
    row.kind, row.node, row.first, row.last = kind, slot.node, first, last


@njit()
def fill_path(c: Cache, node: int) -> int:
    """Write the forest path of `node` to c.path[0..level]; return its level."""
    level = i64(c.nodes[node].level)
    for i in range(level, -1, -1):
        c.path[i] = node
        node = i64(c.nodes[node].parent)
    return level


@njit()
def common_end(c: Cache, s: int, level: int, limit: int) -> int:
    """Return how deep slot s agrees with the path c.path[0..level], at most `limit` tokens."""
    slot = c.slots[s]
    node = i64(slot.node)
    end = i64(slot.d1)
    while c.nodes[node].level > level or c.path[c.nodes[node].level] != node:
        node = i64(c.nodes[node].parent)
        end = min(end, i64(c.nodes[node].end))
    return min(end, limit)


@njit()
def split(c: Cache, hooks: Any, s: int, depth: int, node: int, by_insert: bool) -> int:
    """Split slot s at `depth`; `node` is the forest node of token depth-1. Return the new upper slot."""
    upper = take_slot(c)
    low, up = c.slots[s], c.slots[upper]
    w = i64(low.worker)
    worker = c.workers[w]
    worker.tick += 1
    up.worker, up.parent, up.node, up.first = low.worker, low.parent, node, low.first
    up.d0, up.d1, up.children, up.lock = low.d0, depth, 1, low.lock
    up.hits, up.priority, up.epoch, up.pos = low.hits, low.priority, low.epoch, -1
    up.mark, up.key = min(low.mark, depth), low.key
    up.access = up.created = worker.tick
    c.table[table_find(c, s)] = upper
    below = i64(low.node)
    while c.nodes[below].start > depth:
        below = i64(c.nodes[below].parent)
    low.parent, low.first, low.d0 = upper, below, depth
    low.mark = max(low.mark, depth)
    table_add(c, s)
    if low.pos >= 0:
        hooks.touch(c, w, s, TOUCH_REST)
    hooks.touch(c, w, upper, TOUCH_SPLIT_INSERT if by_insert else TOUCH_SPLIT_MATCH)
    return upper


@njit()
def path_at(c: Cache, i: int, depth: int) -> int:
    """Return the index in c.path, `i` or later, of the forest node that holds the path's token `depth` - 1."""
    while c.nodes[c.path[i]].end < depth:
        i += 1
    return i


@njit()
def next_slot(c: Cache, w: int, i: int, depth: int) -> tuple[int, int]:
    """Return (slot of worker w in which the path goes on from `depth`, or -1; its first node's index in c.path)."""
    i = path_at(c, i, depth + 1)
    return lookup(c, w, i64(c.path[i]), depth), i


@njit()
def descend(
    c: Cache, hooks: Any, w: int, node: int, tokens: int, by_insert: bool, priority: int, inserted: int
) -> tuple[int, int]:
    """Match, or insert into what is there: touch the path, split at its end; return (last slot, its index in c.path).

    `match` and `insert` say more. The index is that of a forest node at or before the end of the slot.
    """
    level, slots = fill_path(c, node), c.slots
    worker = c.workers[w]
    worker.tick += 1
    tick = worker.tick
    s, depth, i = i64(w), i64(0), i64(1)
    while depth < tokens:
        child, i = next_slot(c, w, i, depth)
        if child < 0:
            break
        end = common_end(c, child, level, tokens)
        slots[child].access = tick
        partial = end < slots[child].d1
        if partial:
            i = path_at(c, i, end)
            child = split(c, hooks, child, end, i64(c.path[i]), by_insert)
        if by_insert:
            slots[child].priority = max(slots[child].priority, priority)
            if end > inserted:
                slots[child].hits += 1
        s, depth = child, end
        if partial:
            break
        hooks.touch(c, w, child, TOUCH_INSERT if by_insert else TOUCH_MATCH)
    return s, i


@njit()
def match(c: Cache, hooks: Any, w: int, node: int, tokens: int) -> int:
    """Match the prefix (node, tokens) on worker w; return the slot in which it ends (w itself, the root, if nothing).

    The matched length is ``c.slots[result].d1``. Touches the path; splits where the match ends inside a slot.
    """
    return descend(c, hooks, w, node, tokens, False, 0, 0)[0]


@njit()
def attach_leaf(c: Cache, hooks: Any, s: int, i: int, tokens: int, locked: bool) -> int:
    """Add a slot below slot s for the rest of the path up to depth `tokens`; the caller sets hits and priority.

    The new slot is not yet in the policy's order; slot s leaves it if it was a leaf.
    """
    new = take_slot(c)
    above, slot = c.slots[s], c.slots[new]
    w, depth = i64(above.worker), i64(above.d1)
    worker = c.workers[w]
    i = path_at(c, i, depth + 1)
    slot.worker, slot.parent, slot.first = w, s, c.path[i]
    i = path_at(c, i, tokens)
    slot.node, slot.d0, slot.d1, slot.children = c.path[i], depth, tokens, 0
    worker.tick += 1
    slot.access = slot.created = worker.tick
    slot.pos, slot.epoch, slot.mark, slot.lock = -1, 0, tokens, i64(locked)
    note(c, STORED, new, depth, tokens)
    table_add(c, new)
    if above.pos >= 0:
        hooks.leave(c, w, s)
    above.children += 1
    if locked:
        worker.protected += tokens - depth
    else:
        worker.evictable += tokens - depth
    return new


@njit()
def insert(
    c: Cache, hooks: Any, w: int, node: int, tokens: int, priority: int, inserted: int, locked: bool
) -> tuple[int, int]:
    """Insert the prefix (node, tokens) on worker w; return (slot in which it ends, tokens that were there before).

    Args:
        c: the cache.
        hooks: the eviction policy.
        w: worker.
        node: forest node.
        tokens: length, whole pages.
        priority: of the request; every slot on the path gets at least this.
        inserted: longest key that the same request has inserted before; hits up to there were counted then.
        locked: the new slot begins with one lock and protected (the caller locks the rest of the path), instead of
            evictable.
    """
    s, i = descend(c, hooks, w, node, tokens, True, priority, inserted)
    depth = i64(c.slots[s].d1)
    if depth == tokens:
        return s, depth
    new = attach_leaf(c, hooks, s, i, tokens, locked)
    c.slots[new].hits, c.slots[new].priority = i64(tokens > inserted), priority
    hooks.touch(c, w, new, TOUCH_NEW)
    if not locked:
        hooks.enter(c, w, new)
    return new, depth


@njit()
def lock(c: Cache, hooks: Any, w: int, s: int, stop: int) -> None:
    """Add one lock to slot s and its ancestors up to, not including, slot `stop` (the root: all of them)."""
    slots, worker = c.slots, c.workers[w]
    while s != stop and s != w:
        slot = slots[s]
        if slot.lock == 0:
            size = i64(slot.d1 - slot.d0)
            worker.evictable -= size
            worker.protected += size
            if slot.pos >= 0:
                hooks.leave(c, w, s)
        slot.lock += 1
        s = i64(slot.parent)


@njit()
def unlock(c: Cache, hooks: Any, w: int, s: int) -> None:
    """Remove one lock from slot s and all its ancestors."""
    slots, worker = c.slots, c.workers[w]
    while s != w:
        slot = slots[s]
        slot.lock -= 1
        if slot.lock == 0:
            size = i64(slot.d1 - slot.d0)
            worker.evictable += size
            worker.protected -= size
            if slot.children == 0:
                hooks.enter(c, w, s)
        s = i64(slot.parent)


@njit()
def remove_leaf(c: Cache, w: int, s: int) -> int:
    """Evict the evictable leaf s, already out of the policy's order; return its parent if that is one now, else -1."""
    slot, worker = c.slots[s], c.workers[w]
    size = i64(slot.d1 - slot.d0)
    worker.evictable -= size
    worker.free += size
    worker.evicted += size
    note(c, REMOVED, s, i64(slot.d0), i64(slot.d1))
    table_remove(c, s)
    parent = i64(slot.parent)
    give_slot(c, s)
    above = c.slots[parent]
    above.children -= 1
    if above.children == 0 and above.lock == 0 and parent != w:
        return parent
    return -1


@njit()
def drop_tail(c: Cache, w: int, s: int, tokens: int) -> None:
    """Evict the last `tokens` tokens of the evictable leaf s, fewer than it holds."""
    slot, worker = c.slots[s], c.workers[w]
    note(c, REMOVED, s, i64(slot.d1) - tokens, i64(slot.d1))
    slot.d1 -= tokens
    slot.mark = min(slot.mark, slot.d1)
    node = i64(slot.node)
    while c.nodes[node].start >= slot.d1:
        node = i64(c.nodes[node].parent)
    slot.node = node
    worker.evictable -= tokens
    worker.free += tokens
    worker.evicted += tokens


@njit()
def peek(c: Cache, w: int, node: int, tokens: int) -> int:
    """Return how many tokens of the prefix (node, tokens) worker w holds; changes nothing."""
    level = fill_path(c, node)
    depth, i = i64(0), i64(1)
    while depth < tokens:
        child, i = next_slot(c, w, i, depth)
        if child < 0:
            break
        depth = common_end(c, child, level, tokens)
        if depth < c.slots[child].d1:
            break
    return depth


@njit()
def split_node(c: Cache, w: int, node: int, upper: int, depth: int) -> None:
    """Cut forest node `node` at `depth`: the unused node `upper` becomes its upper half; levels below are the caller's.

    Only for a cache of one worker in which one slot fills the node; the slot itself splits at the next match or insert
    that ends there.
    """
    low, up = c.nodes[node], c.nodes[upper]
    s = lookup(c, w, node, i64(low.start))
    table_remove(c, s)
    up.parent, up.level, up.start, up.end = low.parent, low.level, low.start, depth
    low.parent, low.start = upper, depth
    c.slots[s].first = upper
    table_add(c, s)
