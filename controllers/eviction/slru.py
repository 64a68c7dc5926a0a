"""SLRU evicts leaves with fewer than two hits first (probation), each segment in LRU order.

Source: SGLang 0.5.23 ``--radix-eviction-policy slru``, its default threshold of 2 hits.
"""

from __future__ import annotations

from kvgym.engine.cache.heap import keyed, pack
from kvgym.engine.state import Cache
from kvgym.jit.door import njit

PROTECTED_HITS = 2
"""Hits from which a leaf is protected."""


@njit()
def rank(c: Cache, s: int) -> int:
    """Segment, then last access."""
    return pack(int(c.slots[s].hits >= PROTECTED_HITS), c.slots[s].access)


POLICY = keyed(rank)
