"""MRU evicts the leaf that was accessed most recently.

Source: SGLang 0.5.23, strategy class ``MRUStrategy`` (not among its command-line choices).
"""

from __future__ import annotations

from kvgym.engine.cache.heap import keyed
from kvgym.engine.state import Cache
from kvgym.jit.door import njit


@njit()
def rank(c: Cache, s: int) -> int:
    """Minus the worker tick of the last access."""
    return -c.slots[s].access


POLICY = keyed(rank)
