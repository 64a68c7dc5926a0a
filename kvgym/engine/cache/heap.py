"""A heap keeps each worker's evictable leaves, smallest `key` first; `keyed` makes a policy of a rank."""

from __future__ import annotations

from collections.abc import Callable

from kvgym.engine.cache.policy import Policy, enter_hook, evict_hook, leave_hook, touch_hook
from kvgym.engine.cache.radix import remove_leaf
from kvgym.engine.state import Cache
from kvgym.jit.door import i64, njit


@njit()
def pack(major: int, access: int) -> int:
    """Return one key that orders by `major` (|major| < 2**19), then by `access` (below 2**43)."""
    return (min(max(i64(major), -(1 << 19)), (1 << 19) - 1) << 43) + access


@njit()
def sift(c: Cache, w: int, i: int) -> None:
    """Move the leaf at heap position i of worker w to where its key belongs."""
    row, slots, n = c.order[w], c.slots, c.workers[w].leaves
    s = i64(row[i])
    key = slots[s].key
    while i > 0:
        up = (i - 1) >> 1
        other = i64(row[up])
        if slots[other].key <= key:
            break
        row[i] = other
        slots[other].pos = i
        i = up
    while True:
        down = 2 * i + 1
        if down >= n:
            break
        if down + 1 < n and slots[i64(row[down + 1])].key < slots[i64(row[down])].key:
            down += 1
        other = i64(row[down])
        if slots[other].key >= key:
            break
        row[i] = other
        slots[other].pos = i
        i = down
    row[i] = s
    slots[s].pos = i


@njit()
def push(c: Cache, w: int, s: int, key: int) -> None:
    """Add leaf s with this key."""
    worker = c.workers[w]
    i = i64(worker.leaves)
    worker.leaves += 1
    c.order[w, i] = s
    c.slots[s].key = key
    c.slots[s].pos = i
    sift(c, w, i)


@njit()
def pull(c: Cache, w: int, s: int) -> None:
    """Take leaf s out."""
    worker, row = c.workers[w], c.order[w]
    i = i64(c.slots[s].pos)
    worker.leaves -= 1
    last = i64(row[worker.leaves])
    c.slots[s].pos = -1
    if last != s:
        row[i] = last
        c.slots[last].pos = i
        sift(c, w, i)


def keyed(rank: Callable[[Cache, int], int]) -> Policy:
    """Return the policy that always evicts the whole leaf with the smallest rank.

    Args:
        rank: compiled ``rank(c, s) -> int64`` of slot s; read when s becomes a leaf and whenever it is touched.
    """

    @enter_hook
    def enter(c: Cache, w: int, s: int) -> None:
        push(c, w, s, rank(c, s))

    @leave_hook
    def leave(c: Cache, w: int, s: int) -> None:
        pull(c, w, s)

    @touch_hook
    def touch(c: Cache, w: int, s: int, kind: int) -> None:
        slot = c.slots[s]
        if slot.pos >= 0:
            slot.key = rank(c, s)
            sift(c, w, i64(slot.pos))

    @evict_hook
    def evict(c: Cache, w: int, tokens: int) -> int:
        freed = i64(0)
        while freed < tokens and c.workers[w].leaves > 0:
            s = i64(c.order[w, 0])
            freed += i64(c.slots[s].d1 - c.slots[s].d0)
            pull(c, w, s)
            parent = remove_leaf(c, w, s)
            if parent >= 0:
                push(c, w, parent, rank(c, parent))
        return freed

    return Policy(enter, leave, touch, evict)
