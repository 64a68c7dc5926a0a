"""The nodes of a forest that requests use are renumbered in the order in which they are first used."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from kvgym.forest.forest import Forest


@dataclass(frozen=True)
class Structure:
    """Which prompt shares which beginning, without any content.

    Attributes:
        parents: of nodes 1, 2, ...: the parent's id, smaller than the node's own; int32 (nodes,).
        node_ends: depth of each of these nodes' ends, tokens, int32 (nodes,).
        counts: number of nodes that each request is the first to use, int32 (requests,).
        ends: the given ends in the new numbering, int32 (requests, k); -1 stays.
    """

    parents: np.ndarray
    node_ends: np.ndarray
    counts: np.ndarray
    ends: np.ndarray


def extract(forest: Forest, ends: np.ndarray) -> Structure:
    """Return the structure below `ends`, the nodes where each request's sequences end, int32 (requests, k).

    A node in which nothing ends and nothing branches is joined to the one below it.
    """
    nodes, unused = forest.nodes, len(ends)
    first = np.full(len(nodes), unused, np.int64)  # the first request that uses each node
    for column in ends.T:
        rows = np.flatnonzero(column > 0)
        np.minimum.at(first, column[rows], rows)
    levels = _by_level(nodes["level"])
    for at in reversed(levels):
        np.minimum.at(first, nodes["parent"][at], first[at])
    used = first < unused
    used[0] = False
    kept = np.bincount(nodes["parent"][used], minlength=len(nodes)) != 1
    kept[ends[ends > 0]] = True
    kept[0] = True
    above = nodes["parent"].copy()  # nearest kept ancestor
    for at in levels:
        parent = nodes["parent"][at]
        above[at] = np.where(kept[parent], parent, above[parent])
    chosen = np.flatnonzero(kept & used)
    chosen = chosen[np.lexsort((nodes["level"][chosen], first[chosen]))]
    number = np.zeros(len(nodes), np.int32)
    number[chosen] = np.arange(1, len(chosen) + 1)
    return Structure(
        number[above[chosen]],
        nodes["end"][chosen],
        np.bincount(first[chosen], minlength=unused).astype(np.int32),
        np.where(ends >= 0, number[ends], -1).astype(np.int32),
    )


def _by_level(levels: np.ndarray) -> list[np.ndarray]:
    """Return the nodes of each level from 1 on."""
    order = np.argsort(levels, kind="stable")
    return np.split(order, np.cumsum(np.bincount(levels)))[1:-1]
