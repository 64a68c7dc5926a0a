"""Largest first evicts the leaf with the most tokens."""

from __future__ import annotations

from kvgym.engine.cache.heap import keyed
from kvgym.engine.state import Cache
from kvgym.jit.door import njit


@njit()
def rank(c: Cache, s: int) -> int:
    """Rank of slot `s`, the smallest goes first: here minus its length in tokens."""
    return c.slots[s].d0 - c.slots[s].d1


POLICY = keyed(rank)
