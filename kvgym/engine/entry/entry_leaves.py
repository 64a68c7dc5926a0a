"""Evictions that are decided outside are entered here: offer leaves, take one."""

from __future__ import annotations

import numpy as np

from kvgym.engine.cache import leaves
from kvgym.engine.cache.marks import is_marked
from kvgym.engine.entry.signatures import SIM_TYPE, on_cache
from kvgym.engine.state import Cache, Sim
from kvgym.jit.door import i64
from kvgym.jit.entry_points import INT, INTS, records_type
from kvgym.types import CANDIDATE, DONE

_ROWS = records_type(CANDIDATE)


@on_cache(INT, SIM_TYPE, INT, INT, INT, INTS, _ROWS, INTS)
def offer(
    c: Cache, x: Sim, w: int, recent: int, random: int, last_turn: np.ndarray, rows: np.ndarray, slots: np.ndarray
) -> int:
    """`leaves.offer`; describe what is offered in `rows`, and which slots these are in `slots`; return how many.

    ``last_turn[node]`` is the last request of the session that was the first to use the forest node; -1: none has.
    """
    n = leaves.offer(c, w, recent, random)
    tick = c.workers[w].tick
    for i in range(n):
        s = i64(c.scratch[len(c.scratch) // 2 + i])
        slot, row = c.slots[s], rows[i]
        slots[i] = s
        row.age, row.idle = tick - slot.created, tick - slot.access
        row.tokens, row.depth, row.hits, row.priority = slot.d1 - slot.d0, slot.d1, slot.hits, slot.priority
        row.children, row.fanout = leaves.children_seen(c, s), c.slots[slot.parent].children
        last = i64(last_turn[slot.node])
        row.marked, row.open = is_marked(c, w, s), last >= 0 and x.live[last].status < DONE
    return n


@on_cache(INT, INT, INT, INT)
def take(c: Cache, w: int, s: int, tokens: int) -> int:
    """`leaves.take`, for the eviction that worker w waits for."""
    freed = leaves.take(c, w, s, tokens)
    c.workers[w].need = max(c.workers[w].need - freed, 0)
    return freed
