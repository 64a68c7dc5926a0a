"""Serves prompts on one cache without a scheduler: batch by batch, no answers, every resident token is a hit.

This is the model that competitive ratios are stated in. It counts *loads*, the tokens of a prompt that are not resident
on its arrival; the last token of a prompt may be a hit (the engine always computes it). The arrays never grow here: the
caller makes the cache large enough for all prompts.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from kvgym.engine.cache import radix
from kvgym.engine.cache.binding import hooks_of
from kvgym.engine.entry.signatures import with_hooks
from kvgym.engine.state import Cache
from kvgym.jit.door import i64, njit
from kvgym.jit.entry_points import INT, LENGTHS, VOID


@njit()
def load_all(
    c: Cache, hooks: Any, queries: np.ndarray, nodes: np.ndarray, tokens: np.ndarray, ends: np.ndarray, lo: int, hi: int
) -> None:
    """Queries lo..hi-1 are matched, to the slots `ends`, and locked: evict what they lack, insert and unlock them."""
    worker, need = c.workers[0], i64(0)
    for i in range(lo, hi):
        need += tokens[queries[i]] - i64(c.slots[ends[i]].d1)
    if need > worker.free and worker.evictable > 0:
        hooks.evict(c, 0, need - worker.free)
    for i in range(lo, hi):
        q = queries[i]
        _, present = radix.insert(c, hooks, 0, nodes[q], tokens[q], 0, 0, False)
        worker.free -= tokens[q] - present
    for i in range(lo, hi):
        radix.unlock(c, hooks, 0, ends[i])


@with_hooks(VOID, LENGTHS, LENGTHS, LENGTHS, INT, LENGTHS, LENGTHS)
def serve(
    c: Cache,
    queries: np.ndarray,
    nodes: np.ndarray,
    tokens: np.ndarray,
    batch: int,
    loads: np.ndarray,
    ends: np.ndarray,
    bound: Any,
) -> None:
    """Serve all queries; a batch is loaded in as many parts as it takes to fit into the pool.

    Args:
        c: the cache of one worker, page size 1.
        queries: numbers of prompts.
        nodes: forest node of each prompt.
        tokens: length of each prompt.
        batch: queries that are loaded together.
        loads: receives the loads of each query.
        ends: working space, one per query.
        bound: hooks of the policy.
    """
    hooks, worker = hooks_of(bound), c.workers[0]
    for start in range(0, len(queries), batch):
        lo, i, need = i64(start), i64(start), i64(0)
        end = min(start + batch, len(queries))
        while i < end:
            q = queries[i]
            slot = radix.match(c, hooks, 0, nodes[q], tokens[q])
            radix.lock(c, hooks, 0, slot, 0)
            missing = tokens[q] - i64(c.slots[slot].d1)
            if i > lo and need + missing > worker.free + worker.evictable:
                radix.unlock(c, hooks, 0, slot)
                load_all(c, hooks, queries, nodes, tokens, ends, lo, i)
                lo, need = i, i64(0)
                continue
            ends[i] = slot
            loads[i] = missing
            need += missing
            i += 1
        load_all(c, hooks, queries, nodes, tokens, ends, lo, end)


@with_hooks(VOID, LENGTHS, LENGTHS, LENGTHS, LENGTHS, LENGTHS)
def defy(
    c: Cache,
    queries: np.ndarray,
    nodes: np.ndarray,
    tokens: np.ndarray,
    loads: np.ndarray,
    ends: np.ndarray,
    bound: Any,
) -> None:
    """`serve` one at a time, where each query is chosen here: the next prompt, cyclically, that is not all resident."""
    hooks, q = hooks_of(bound), i64(0)
    for t in range(len(queries)):
        for _ in range(len(nodes)):
            q = (q + 1) % len(nodes)
            if radix.peek(c, 0, nodes[q], tokens[q]) < tokens[q]:
                break
        queries[t] = q
        slot = radix.match(c, hooks, 0, nodes[q], tokens[q])
        radix.lock(c, hooks, 0, slot, 0)
        ends[t] = slot
        loads[t] = tokens[q] - i64(c.slots[slot].d1)
        load_all(c, hooks, queries, nodes, tokens, ends, t, t + 1)
