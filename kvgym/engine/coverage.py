"""Measures how much of each prompt is covered by what came before: first touches of nodes, and the depth they reach.

An *event* covers the first `limit` tokens below a node from the moment `key` on. Its deepest node may be covered in
part only: of an answer the last token is never computed. Coverage is closed under prefixes, so the deepest node that
was touched in time says it all. Keys are whole numbers in the order of time; those under `base` are of an earlier use
of the same arrays, so that nobody has to clear them.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from kvgym.forest.forest import NODE
from kvgym.jit.door import i64, njit
from kvgym.jit.entry_points import INT, LENGTHS, MATRIX, VOID, records_type

NODES = records_type(NODE)


@njit(VOID(NODES, MATRIX, INT, LENGTHS, LENGTHS, LENGTHS))
def touch(nodes: Any, events: np.ndarray, base: int, when: np.ndarray, whole: np.ndarray, part: np.ndarray) -> None:
    """Note for each node when it was touched first, and when first as a whole.

    Args:
        nodes: forest NODE records.
        events: (key, node, limit) rows, keys ascending and at least `base`, shape (events, 3).
        base: smallest key that counts.
        when: key of the first touch, shape (nodes,).
        whole: key of the first touch of all its tokens, shape (nodes,).
        part: largest depth to which a node was touched in part, tokens, shape (nodes,).
    """
    for e in range(len(events)):
        key, x, limit = events[e, 0], events[e, 1], events[e, 2]
        while x > 0 and i64(nodes[x].start) >= limit:
            x = i64(nodes[x].parent)
        while x > 0 and whole[x] < base:  # the ancestors of a node that is whole are whole
            if when[x] < base:
                when[x] = key
            if i64(nodes[x].end) <= limit:
                whole[x] = key
            else:
                part[x] = max(part[x], limit)
            x = i64(nodes[x].parent)


@njit(VOID(NODES, MATRIX, INT, LENGTHS, LENGTHS, LENGTHS, LENGTHS))
def depths(
    nodes: Any,
    queries: np.ndarray,
    base: int,
    when: np.ndarray,
    whole: np.ndarray,
    part: np.ndarray,
    out: np.ndarray,
) -> None:
    """Write to out[q] how many tokens of query q's prompt were covered by then.

    Args:
        nodes: forest NODE records.
        queries: (key, node) rows: what counts has at most this key, shape (queries, 2).
        base: smallest key that counts.
        when: as of `touch`.
        whole: likewise.
        part: likewise.
        out: tokens, shape (queries,).
    """
    for q in range(len(queries)):
        key, x = queries[q, 0], queries[q, 1]
        while x > 0 and not base <= when[x] <= key:
            x = i64(nodes[x].parent)
        out[q] = i64(nodes[x].end) if x == 0 or base <= whole[x] <= key else part[x]
