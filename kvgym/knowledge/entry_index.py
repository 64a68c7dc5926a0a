"""Prefix indexes are entered here: insert, remove, forget, match; no dispatcher, as in `entry`.

Importing this module compiles them, or loads them from the cache folder.
"""

from __future__ import annotations

import numpy as np

from kvgym.forest.forest import NODE
from kvgym.jit.door import i64, record_zeros
from kvgym.jit.entry_points import BOOL, FLAGS, FLOAT, INT, LENGTHS, VOID, entry_point, type_of
from kvgym.knowledge import tags
from kvgym.knowledge.tags import CHARS, Tags, new_tags

TAGS_TYPE = type_of(new_tags(1, 1))
NODES = type_of(record_zeros(1, NODE))


@entry_point(BOOL, TAGS_TYPE, NODES, INT, INT, INT, FLOAT, INT)
def insert(t: Tags, nodes: np.ndarray, worker: int, node: int, tokens: int, time_s: float, most_tokens: int) -> bool:
    """`tags.insert`, after which the worker forgets what it has above `most_tokens` tokens."""
    done = tags.insert(t, nodes, worker, node, tokens, time_s)
    if done:
        tags.forget(t, nodes, worker, tags.TOKENS, most_tokens)
    return done


@entry_point(VOID, TAGS_TYPE, NODES, INT, INT, INT, INT)
def remove(t: Tags, nodes: np.ndarray, worker: int, node: int, first: int, last: int) -> None:
    """`tags.remove`."""
    tags.remove(t, nodes, worker, node, first, last)


@entry_point(VOID, TAGS_TYPE, NODES, INT, INT, INT)
def forget(t: Tags, nodes: np.ndarray, worker: int, unit: int, limit: int) -> None:
    """`tags.forget`."""
    tags.forget(t, nodes, worker, unit, limit)


@entry_point(BOOL, TAGS_TYPE, NODES, INT, INT)
def split(t: Tags, nodes: np.ndarray, upper: int, lower: int) -> bool:
    """`tags.split`."""
    return tags.split(t, nodes, upper, lower)


@entry_point(VOID, TAGS_TYPE)
def rehash(t: Tags) -> None:
    """`tags.rehash`."""
    tags.rehash(t)


@entry_point(INT, TAGS_TYPE, NODES, INT)
def deepest(t: Tags, nodes: np.ndarray, node: int) -> int:
    """`tags.deepest`."""
    return tags.deepest(t, nodes, node)


@entry_point(VOID, TAGS_TYPE, INT, FLAGS)
def tagged(t: Tags, node: int, out: np.ndarray) -> None:
    """Write to `out`, bool (workers,), which workers have a tag on `node`."""
    for worker in range(len(out)):
        out[worker] = tags.entry_of(t, node, worker) >= 0


@entry_point(INT, TAGS_TYPE, INT)
def owner(t: Tags, node: int) -> int:
    """Return the owner of a tagged `node`, after handing it to the lowest holder if the old owner has lost its tag."""
    if tags.entry_of(t, node, i64(t.holders[node, 1])) < 0:
        worker = 0
        while tags.entry_of(t, node, worker) < 0:
            worker += 1
        t.holders[node, 1] = worker
    return i64(t.holders[node, 1])


@entry_point(VOID, TAGS_TYPE, NODES, INT, INT, LENGTHS)
def match(t: Tags, nodes: np.ndarray, node: int, unit: int, out: np.ndarray) -> None:
    """Write to `out`, int64 (workers,), how much of `node` each worker holds by its deepest tag on the path.

    Right for tags that are closed under prefixes. In characters (of whole nodes) or tokens.
    """
    top = tags.deepest(t, nodes, node)
    for worker in range(len(out)):
        at, entry = top, i64(-1)
        while at > 0:
            entry = tags.entry_of(t, at, worker)
            if entry >= 0:
                break
            at = i64(nodes[at].parent)
        if entry < 0:
            out[worker] = 0
        else:
            out[worker] = nodes[at].chars_end if unit == CHARS else t.entries[entry].end


@entry_point(VOID, TAGS_TYPE, NODES, INT, LENGTHS)
def match_unbroken(t: Tags, nodes: np.ndarray, node: int, out: np.ndarray) -> None:
    """Write to `out`, int64 (workers,), how many tokens of `node` each worker holds before the first hole."""
    top = tags.deepest(t, nodes, node)
    for worker in range(len(out)):
        at, held = top, i64(0)
        while at > 0:
            entry = tags.entry_of(t, at, worker)
            if entry < 0:
                held = i64(0)
            elif held == 0 or t.entries[entry].end < nodes[at].end:
                held = i64(t.entries[entry].end)
            at = i64(nodes[at].parent)
        out[worker] = held
