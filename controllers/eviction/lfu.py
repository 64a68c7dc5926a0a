"""LFU evicts the leaf with the fewest hits, the least recently accessed among equals.

Source: SGLang 0.5.23 ``--radix-eviction-policy lfu``. Hits grow on insert only, once per request and node.
"""

from __future__ import annotations

from kvgym.engine.cache.heap import keyed, pack
from kvgym.engine.state import Cache
from kvgym.jit.door import njit


@njit()
def rank(c: Cache, s: int) -> int:
    """Hits, then last access."""
    return pack(c.slots[s].hits, c.slots[s].access)


POLICY = keyed(rank)
