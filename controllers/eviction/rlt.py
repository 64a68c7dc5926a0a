"""RLT evicts leaf tokens at random, with marks and the paper's phase rule.

Source: paper section 3 (arXiv 2601.18999; dossier 3.1): a token is marked when it is accessed, in prompt order; when
B + 1 tokens are marked the phase ends and only the newest stays marked; to load a token into a full cache, evict one
drawn uniformly from the unmarked leaf tokens. Each unlocked leaf offers exactly its last token, so the draw is over
leaves. No recency is used.

What the engine adds to the single-query model:
- marks and draws count pages when the page size exceeds 1;
- tokens of running requests are locked and never evicted;
- a whole batch is loaded at once, so marks of new tokens come after the evictions made for them. Marked tokens are
  resident, so B + 1 marks would need a full cache of marked tokens and one more: exactly when an eviction finds no
  unmarked leaf. There the phase ends (every evictable leaf becomes a candidate).
"""

from __future__ import annotations

from kvgym.engine.cache import leaflist
from kvgym.engine.cache.marks import add_leaf, mark
from kvgym.engine.cache.policy import Policy, enter_hook, evict_hook, leave_hook, touch_hook
from kvgym.engine.cache.radix import TOUCH_REST
from kvgym.engine.cache.tails import evict_unmarked
from kvgym.engine.state import Cache


@enter_hook
def enter(c: Cache, w: int, s: int) -> None:
    """A leaf is a candidate unless it is marked in this phase."""
    add_leaf(c, w, s)


@leave_hook
def leave(c: Cache, w: int, s: int) -> None:
    """Locked or grown: no leaf any more; its marks stay."""
    leaflist.discard(c, w, s)


@touch_hook
def touch(c: Cache, w: int, s: int, kind: int) -> None:
    """Mark what was accessed."""
    if kind != TOUCH_REST:
        mark(c, w, s)


@evict_hook
def evict(c: Cache, w: int, tokens: int) -> int:
    """One uniform draw per page over the unmarked leaves; a phase ends when none is left."""
    return evict_unmarked(c, w, tokens)


POLICY = Policy(enter, leave, touch, evict)
