"""Belady evicts the tail that is needed last, an oracle baseline.

Source: Belady 1966, on tokens: of all evictable leaves, the one whose last forest node is used again last loses it,
token by token. An ancestor is needed no later than its descendants, so this is the best that any policy can do where
requests come one at a time (`kvgym.engine.offline`). With several requests in flight, or where an eviction asks for
more than is missing, it is a baseline, not a bound.

It sees the future (`kvgym.engine.future`): it runs only where an oracle is allowed, on one worker whose order of
requests is known beforehand.
"""

from __future__ import annotations

import dataclasses

from kvgym.engine.cache.heap import keyed, pull, push, sift
from kvgym.engine.cache.policy import evict_hook
from kvgym.engine.cache.radix import drop_tail, remove_leaf
from kvgym.engine.future import next_use
from kvgym.engine.state import Cache
from kvgym.jit.door import i64, njit

NEVER = float(1 << 40)


@njit()
def rank(c: Cache, s: int) -> int:
    """Minus the number of the request that needs the end of slot s next."""
    slot = c.slots[s]
    return -i64(min(next_use(c, i64(slot.worker), i64(slot.node)), NEVER))


@evict_hook
def evict(c: Cache, w: int, tokens: int) -> int:
    """Node by node from the leaf that is needed last."""
    page, freed = c.options[0].page, i64(0)
    while freed < tokens and c.workers[w].leaves > 0:
        s = i64(c.order[w, 0])
        slot = c.slots[s]
        need = (tokens - freed + page - 1) // page * page
        part = min(i64(slot.d1) - max(i64(c.nodes[slot.node].start), i64(slot.d0)), need)
        freed += part
        if part < slot.d1 - slot.d0:
            drop_tail(c, w, s, part)
            slot.key = rank(c, s)
            sift(c, w, 0)
            continue
        pull(c, w, s)
        parent = remove_leaf(c, w, s)
        if parent >= 0:
            push(c, w, parent, rank(c, parent))
    return freed


POLICY = dataclasses.replace(keyed(rank), evict=evict, oracle=True)
