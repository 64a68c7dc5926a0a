"""RLT as its authors released it ends phases by three triggers and marks whole nodes on insert.

Source: repository fzwark/KVRouting at fc3b2a1 (a fork of SGLang 0.4.6, flag ``--enable-lrt``); dossier 3.2. Against the
paper's rule (`rlt`):
- the limit is B, not B + 1, and tokens are counted by whole nodes;
- nodes are marked when they are inserted through (after each prefill chunk and at the finish), not when they are
  looked up; a look-up marks only the upper half that it splits off;
- (a) marked tokens reach B: all marks are cleared, then the node at hand and its ancestors are marked;
  (b) an eviction of k tokens begins with k + marked >= B: all marks are cleared;
  (c) the candidate leaves hold fewer than k tokens in all: all marks are cleared.
Use it with ``engine: sglang-0.4.6``, as SGLang 0.4.6 asks for the full demand. Page size 1 in the source; larger pages
count and drop whole pages here.
"""

from __future__ import annotations

from controllers.eviction.rlt import enter, leave
from kvgym.engine.cache.marks import end_phase, mark
from kvgym.engine.cache.policy import Policy, evict_hook, touch_hook
from kvgym.engine.cache.radix import TOUCH_MATCH, TOUCH_REST
from kvgym.engine.cache.tails import evict_unmarked
from kvgym.engine.state import Cache
from kvgym.jit.door import i64, njit


@njit()
def candidate_tokens(c: Cache, w: int, enough: int) -> int:
    """Tokens of the candidate leaves, counted until they reach `enough`."""
    total = i64(0)
    for i in range(c.workers[w].unmarked):
        slot = c.slots[i64(c.order[w, i])]
        total += i64(slot.d1 - slot.d0)
        if total >= enough:
            break
    return total


@touch_hook
def touch(c: Cache, w: int, s: int, kind: int) -> None:
    """Mark what an insert passes or makes, and upper halves; trigger (a) ends the phase."""
    if kind in (TOUCH_MATCH, TOUCH_REST):
        return
    mark(c, w, s)
    if c.workers[w].marked >= c.workers[w].capacity:
        end_phase(c, w)
        while s != w:
            mark(c, w, s)
            s = i64(c.slots[s].parent)


@evict_hook
def evict(c: Cache, w: int, tokens: int) -> int:
    """Triggers (b) and (c), then one uniform draw per page over the unmarked leaves."""
    worker = c.workers[w]
    if tokens + worker.marked >= worker.capacity:
        end_phase(c, w)
    if candidate_tokens(c, w, tokens) < tokens:
        end_phase(c, w)
    return evict_unmarked(c, w, tokens)


POLICY = Policy(enter, leave, touch, evict)
