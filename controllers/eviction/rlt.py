"""RLT: randomized leaf-token eviction with the paper's phase rule.

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

A slot's marked tokens are always its last ones (`mark` .. d1-1), because a tail that is marked can't be dropped.
"""

from __future__ import annotations

from kvgym.jit import i64
from kvgym.sim import leaflist
from kvgym.sim.cache import TOUCH_REST
from kvgym.sim.policy import Policy, enter_hook, evict_hook, leave_hook, touch_hook
from kvgym.sim.state import Cache
from kvgym.sim.tails import drop_pages


@enter_hook
def enter(c: Cache, w: int, s: int) -> None:
    """A leaf is a candidate unless its last token is marked in this phase."""
    slot = c.slots[s]
    leaflist.add(c, w, s, slot.epoch != c.workers[w].epoch or slot.mark >= slot.d1)


@leave_hook
def leave(c: Cache, w: int, s: int) -> None:
    """Locked or grown: no leaf any more; its marks stay."""
    leaflist.discard(c, w, s)


@touch_hook
def touch(c: Cache, w: int, s: int, kind: int) -> None:
    """Mark all tokens of the slot."""
    if kind == TOUCH_REST:
        return
    slot, worker = c.slots[s], c.workers[w]
    worker.marked += i64((slot.mark if slot.epoch == worker.epoch else slot.d1) - slot.d0)
    slot.mark, slot.epoch = slot.d0, worker.epoch
    if 0 <= slot.pos < worker.unmarked:
        leaflist.exclude(c, w, s)


@evict_hook
def evict(c: Cache, w: int, tokens: int) -> int:
    """One uniform draw per page over the unmarked leaves; a phase ends when none is left."""
    worker, page = c.workers[w], c.options[0].page
    freed = i64(0)
    while freed < tokens and worker.leaves > 0:
        if worker.unmarked == 0:
            worker.epoch += 1
            worker.marked = 0
            leaflist.all_candidates(c, w)
        pages, parent = drop_pages(c, w, (tokens - freed + page - 1) // page)
        freed += pages * page
        if parent >= 0:
            enter(c, w, parent)
    return freed


POLICY = Policy(enter, leave, touch, evict)
