"""Random leaf evicts a whole leaf chosen uniformly at random, without recency or marks.

The node-wise, memoryless counterpart of RLT; no SGLang release has it.
"""

from __future__ import annotations

from controllers.eviction.rlt import leave
from kvgym.engine.cache import leaflist
from kvgym.engine.cache.policy import Policy, enter_hook, evict_hook, touch_hook
from kvgym.engine.rng import below, next_word
from kvgym.engine.state import Cache
from kvgym.jit.door import i64


@enter_hook
def enter(c: Cache, w: int, s: int) -> None:
    """Every evictable leaf is a candidate."""
    leaflist.add(c, w, s, True)


@touch_hook
def touch(c: Cache, w: int, s: int, kind: int) -> None:
    """Accesses do not matter."""


@evict_hook
def evict(c: Cache, w: int, tokens: int) -> int:
    """One draw per leaf until enough tokens are free."""
    freed = i64(0)
    while freed < tokens and c.workers[w].leaves > 0:
        c.rng[w], bits = next_word(c.rng[w])
        freed += leaflist.take(c, w, i64(c.order[w, below(bits, c.workers[w].leaves)]))
    return freed


POLICY = Policy(enter, leave, touch, evict)
