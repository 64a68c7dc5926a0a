"""Priority evicts the leaf whose requests had the lowest priority, the least recently accessed among equals.

Source: SGLang 0.5.23 ``--radix-eviction-policy priority``. A node keeps the highest priority of the requests that were
inserted through it; the prompt part of a finished request counts one more than its answer.
"""

from __future__ import annotations

from kvgym.engine.cache.heap import keyed, pack
from kvgym.engine.state import Cache
from kvgym.jit.door import njit


@njit()
def rank(c: Cache, s: int) -> int:
    """Priority, then last access."""
    return pack(c.slots[s].priority, c.slots[s].access)


POLICY = keyed(rank)
