"""LFU: evict the leaf with the fewest hits, the least recently accessed among equals.

Source: SGLang 0.5.23 ``--radix-eviction-policy lfu``. Hits grow on insert only, once per request and node.
"""

from __future__ import annotations

from kvgym.jit.door import njit
from kvgym.sim.heap import keyed, pack
from kvgym.sim.state import Cache


@njit()
def rank(c: Cache, s: int) -> int:
    """Hits, then last access."""
    return pack(c.slots[s].hits, c.slots[s].access)


POLICY = keyed(rank)
