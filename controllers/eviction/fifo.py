"""FIFO evicts the leaf that was created longest ago.

Source: SGLang 0.5.23, strategy class ``FIFOStrategy`` (not among its command-line choices). The upper half of a split
counts as created by the split.
"""

from __future__ import annotations

from kvgym.engine.cache.heap import keyed
from kvgym.engine.state import Cache
from kvgym.jit.door import njit


@njit()
def rank(c: Cache, s: int) -> int:
    """Worker tick of creation."""
    return c.slots[s].created


POLICY = keyed(rank)
