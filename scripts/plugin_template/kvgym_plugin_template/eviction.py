"""Largest first: evict the leaf with the most tokens."""

from __future__ import annotations

from kvgym.jit.door import njit
from kvgym.sim.heap import keyed
from kvgym.sim.state import Cache


@njit()
def rank(c: Cache, s: int) -> int:
    """Rank of slot `s`, the smallest goes first: here minus its length in tokens."""
    return c.slots[s].d0 - c.slots[s].d1


POLICY = keyed(rank)
