"""LRU evicts the leaf that was accessed longest ago (L-LRU of the paper, SGLang's default).

Source: SGLang 0.5.23 ``--radix-eviction-policy lru``; paper section 2. A match or an insert accesses the whole path
and the unmatched rest of the leaf in which it ends.
"""

from __future__ import annotations

from kvgym.engine.cache.heap import keyed
from kvgym.engine.state import Cache
from kvgym.jit.door import njit


@njit()
def rank(c: Cache, s: int) -> int:
    """Worker tick of the last access."""
    return c.slots[s].access


POLICY = keyed(rank)
