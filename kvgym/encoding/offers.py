"""An EvictionDecision becomes arrays of bounded float32 features; compiled policies see the same columns.

Scaling and clipping are those of `kvgym.encoding.decisions`. A tick is one match or insert in the worker's cache, or a
split.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from gymnasium import spaces

from kvgym.encoding.decisions import TOP_LOAD_TOKENS, TOP_REQUESTS, TOP_TOKENS, Feature, box, log_scaled, share_of
from kvgym.jit.door import as_records, njit
from kvgym.types import EvictionDecision

MOST_UNITS = 256
"""Most hidden units of a trained scorer."""
TOP_TICKS = 2**24
"""Ticks that read 1 in logarithmic features."""
TOP_PRIORITY = 2**8
"""Priorities from here on read 1."""

CACHE_FEATURES = (
    Feature("need", "tokens still to be freed", "log(tokens, 2^20)"),
    Feature("need_share", "the same over the worker's KV capacity", "fraction"),
    Feature("free", "free tokens over the capacity", "fraction"),
    Feature("evictable", "tokens that may be evicted, over the capacity", "fraction"),
    Feature("capacity", "the worker's KV capacity", "log(tokens, 2^24)"),
    Feature("leaves", "evictable leaves, offered or not", "log(leaves, 2^20)"),
    Feature("unmarked", "part of them without a mark", "fraction"),
    Feature("running", "requests in the worker's running batch", "log(requests, 2^12)"),
    Feature("queued", "requests waiting in its queue", "log(requests, 2^12)"),
)
"""Columns of ``cache``, shape (9,)."""

CANDIDATE_FEATURES = (
    Feature("age", "since the leaf was made", "log(ticks, 2^24)"),
    Feature("idle", "since its last access", "log(ticks, 2^24)"),
    Feature("tokens", "tokens that it holds", "log(tokens, 2^20)"),
    Feature("depth", "from the beginning of the prompt to its end", "log(tokens, 2^20)"),
    Feature("hits", "requests that have inserted it", "log(requests, 2^12)"),
    Feature("children", "branches that were ever made below it", "log(nodes, 2^12)"),
    Feature("fanout", "branches of its parent now, itself included", "log(nodes, 2^12)"),
    Feature("priority", "largest priority of a request that inserted it", "signed log(priority, 2^8)", -1.0),
    Feature("marked", "accessed in this phase (see above)", "0 or 1"),
    Feature("open", "the session that used it first has turns that have not ended", "0 or 1"),
)
"""Columns of ``candidates``, shape (candidates, 10); what a compiled policy cannot see comes last: ``open``."""


def eviction_space(candidates: int) -> spaces.Dict:
    """Return the space of `encode_eviction`'s observations: ``cache`` (9,) and ``candidates`` (candidates, 10)."""
    return spaces.Dict({"cache": box(CACHE_FEATURES), "candidates": box(CANDIDATE_FEATURES, candidates)})


def encode_eviction(decision: EvictionDecision) -> dict[str, np.ndarray]:
    """Return the observation of `decision`, new float32 arrays; rows of places without a candidate are 0."""
    d = decision
    rows = np.zeros((len(d.mask), len(CANDIDATE_FEATURES)), np.float32)
    cache = np.empty(len(CACHE_FEATURES), np.float32)
    write_candidates(as_records(d.candidates), rows)
    totals = (d.need_tokens, d.free_tokens, d.evictable_tokens, d.capacity_tokens, d.leaves, d.unmarked)
    write_cache(*totals, d.running, d.queued, cache)
    return {"cache": cache, "candidates": rows}


@njit()
def write_cache(
    need: int,
    free: int,
    evictable: int,
    capacity: int,
    leaves: int,
    unmarked: int,
    running: int,
    queued: int,
    out: np.ndarray,
) -> None:
    """Write the features in the order of `CACHE_FEATURES`."""
    out[0] = log_scaled(need, TOP_TOKENS)
    out[1] = share_of(need, capacity)
    out[2] = share_of(free, capacity)
    out[3] = share_of(evictable, capacity)
    out[4] = log_scaled(capacity, TOP_LOAD_TOKENS)
    out[5] = log_scaled(leaves, TOP_TOKENS)
    out[6] = share_of(unmarked, leaves)
    out[7] = log_scaled(running, TOP_REQUESTS)
    out[8] = log_scaled(queued, TOP_REQUESTS)


@njit()
def write_leaf(
    age: int, idle: int, tokens: int, depth: int, hits: int, children: int, fanout: int, priority: int, out: np.ndarray
) -> None:
    """Write the features of one leaf but the last two, in the order of `CANDIDATE_FEATURES`."""
    out[0] = log_scaled(age, TOP_TICKS)
    out[1] = log_scaled(idle, TOP_TICKS)
    out[2] = log_scaled(tokens, TOP_TOKENS)
    out[3] = log_scaled(depth, TOP_TOKENS)
    out[4] = log_scaled(hits, TOP_REQUESTS)
    out[5] = log_scaled(children, TOP_REQUESTS)
    out[6] = log_scaled(fanout, TOP_REQUESTS)
    out[7] = log_scaled(priority, TOP_PRIORITY) - log_scaled(-priority, TOP_PRIORITY)


@njit()
def write_candidates(leaves: Any, rows: np.ndarray) -> None:
    """Write the features of CANDIDATE records to the first rows."""
    for i in range(len(leaves)):
        leaf = leaves[i]
        write_leaf(
            leaf.age, leaf.idle, leaf.tokens, leaf.depth, leaf.hits, leaf.children, leaf.fanout, leaf.priority, rows[i]
        )
        rows[i, 8], rows[i, 9] = leaf.marked, leaf.open
