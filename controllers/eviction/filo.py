"""FILO evicts the leaf that was created most recently.

Source: SGLang 0.5.23, strategy class ``FILOStrategy`` (not among its command-line choices).
"""

from __future__ import annotations

from kvgym.engine.cache.heap import keyed
from kvgym.engine.state import Cache
from kvgym.jit.door import njit


@njit()
def rank(c: Cache, s: int) -> int:
    """Minus the worker tick of creation."""
    return -c.slots[s].created


POLICY = keyed(rank)
