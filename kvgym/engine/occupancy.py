"""Pictures show what workers hold of each top-level prefix: read from the slots with numpy, nothing compiled.

A *top-level prefix* is a forest node of the first level on which the forest branches: behind what all prompts share.
"""

from __future__ import annotations

import numpy as np

from kvgym.engine.state import Cache


def top_level(nodes: np.ndarray) -> int:
    """Return the first level of the forest that has more than one node; the deepest one if there is none."""
    per_level = np.bincount(nodes["level"])
    return int(np.argmax(per_level > 1)) if per_level.max() > 1 else len(per_level) - 1


def prefixes_of(nodes: np.ndarray, found: np.ndarray) -> np.ndarray:
    """Return the top-level prefix above each forest node of `found`; nodes that are no deeper stand for themselves."""
    level, result = top_level(nodes), np.array(found)
    deeper = np.flatnonzero(nodes["level"][result] > level)
    while len(deeper):
        result[deeper] = nodes["parent"][result[deeper]]
        deeper = deeper[nodes["level"][result[deeper]] > level]
    return result


def resident(cache: Cache) -> np.ndarray:
    """Return rows of (worker, prefix, resident tokens), int64 (pairs, 3), ascending by worker and prefix."""
    slots = cache.slots[cache.table[cache.table >= 0]]
    nodes = np.int64(len(cache.nodes))
    pair = slots["worker"] * nodes + prefixes_of(cache.nodes, slots["node"])
    pairs, at = np.unique(pair, return_inverse=True)
    tokens = np.bincount(at, slots["d1"] - slots["d0"], len(pairs)).astype(np.int64)
    return np.column_stack((*np.divmod(pairs, nodes), tokens))
