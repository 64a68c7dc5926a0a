"""Compiled insertion into the prefix forest walks by content, splits inside a node and appends a leaf.

A prompt is a chain of ids, each standing for `block_tokens` tokens (1: token ids); the token at depth d is the pair
(ids[d // block_tokens], d % block_tokens), so two prompts agree at depth d exactly when the ids there are equal.
"""

from __future__ import annotations

import numpy as np

from kvgym.jit.door import njit

LINK = np.dtype(
    [
        ("pool", np.int64),  # id of the block at depth d is pool[links[node].pool + d // block_tokens]; -1: no ids
        ("first", np.int32),  # newest child; 0: none
        ("next", np.int32),  # next older sibling; 0: none
        ("prev", np.int32),  # next newer sibling; 0: none
    ],
    align=True,
)
"""What the forest keeps beside each NODE record."""

NODES, POOL, SPLITS, HASHED = 0, 1, 2, 3
"""Positions in the int64 counter array: nodes, pool ids, logged splits and nodes in the hash table."""

_MASK = 0x7FFFFFFF
_MULTIPLIER = 0x9E3779B1


@njit()
def _mix(state: int, value: int) -> int:
    """Fold a 64-bit `value` into the 31-bit hash `state`; every product stays below 2**63, so none overflows."""
    wide = int(value)
    state = ((state ^ (wide & _MASK)) * _MULTIPLIER) & _MASK
    state ^= state >> 15
    state = ((state ^ ((wide >> 31) & _MASK)) * _MULTIPLIER) & _MASK
    return state ^ (state >> 13)


@njit()
def _find_child(
    nodes: np.ndarray,
    links: np.ndarray,
    pool: np.ndarray,
    table: np.ndarray,
    parent: int,
    ids: np.ndarray,
    base: int,
    depth: int,
    page: int,
    block: int,
) -> int:
    """Return the table slot of the child of `parent` whose first page equals ids at `depth`, or the free slot for it.

    The id of block k of the prompt is ids[base + k].
    """
    low, high = depth // block, (depth + page - 1) // block
    state = _mix(17, parent)
    for k in range(low, high + 1):
        state = _mix(state, ids[base + k])
    mask = len(table) - 1
    slot = state & mask
    while table[slot] != 0:
        node = table[slot]
        if nodes[node].parent == parent:
            offset = links[node].pool
            k = low
            while k <= high and pool[offset + k] == ids[base + k]:
                k += 1
            if k > high:
                return slot
        slot = (slot + 1) & mask
    return slot


@njit()
def _matched_end(
    nodes: np.ndarray,
    links: np.ndarray,
    pool: np.ndarray,
    node: int,
    ids: np.ndarray,
    base: int,
    limit: int,
    page: int,
    block: int,
) -> int:
    """Return the depth (a multiple of `page`, at most `limit`) to which the prompt agrees with `node`."""
    end = min(nodes[node].end, limit)
    offset = links[node].pool
    k, last = nodes[node].start // block, (end + block - 1) // block
    while k < last and pool[offset + k] == ids[base + k]:
        k += 1
    return min(k * block, end) // page * page


@njit()
def _attach(nodes: np.ndarray, links: np.ndarray, parent: int, node: int) -> None:
    """Put `node` at the head of the children of `parent` and set its parent and level."""
    old = links[parent].first
    links[parent].first = node
    links[node].next = old
    links[node].prev = 0
    if old != 0:
        links[old].prev = node
    nodes[node].parent = parent
    nodes[node].level = nodes[parent].level + 1


@njit()
def _set_extent(nodes: np.ndarray, node: int, end: int, chars_per_token: float) -> None:
    """Set start, end and characters of `node`, whose parent is known."""
    parent = nodes[node].parent
    nodes[node].start = nodes[parent].end
    nodes[node].end = end
    nodes[node].chars_end = int(end * chars_per_token)
    nodes[node].chars = nodes[node].chars_end - nodes[parent].chars_end


@njit()
def _split(
    nodes: np.ndarray,
    links: np.ndarray,
    counts: np.ndarray,
    splits: np.ndarray,
    table: np.ndarray,
    slot: int,
    depth: int,
    chars_per_token: float,
) -> int:
    """Split the node in `slot` at `depth`; return the new upper half, which takes its place below the parent.

    The lower half keeps its id, end and children; its entry in the table is left to the caller. Levels below are
    stale until `_relevel_splits`.
    """
    lower = table[slot]
    upper = counts[NODES]
    counts[NODES] += 1
    parent = nodes[lower].parent
    nodes[upper].parent = parent
    nodes[upper].level = nodes[lower].level
    _set_extent(nodes, upper, depth, chars_per_token)
    links[upper].pool = links[lower].pool
    before, after = links[lower].prev, links[lower].next
    links[upper].prev = before
    links[upper].next = after
    if before != 0:
        links[before].next = upper
    else:
        links[parent].first = upper
    if after != 0:
        links[after].prev = upper
    links[upper].first = 0
    table[slot] = upper
    _attach(nodes, links, upper, lower)
    _set_extent(nodes, lower, nodes[lower].end, chars_per_token)
    row = counts[SPLITS]
    splits[row, 0], splits[row, 1], splits[row, 2] = upper, lower, depth
    counts[SPLITS] = row + 1
    return upper


@njit(allocates=True)
def _new_leaf(
    nodes: np.ndarray,
    links: np.ndarray,
    pool: np.ndarray,
    counts: np.ndarray,
    parent: int,
    ids: np.ndarray,
    base: int,
    end: int,
    block: int,
    chars_per_token: float,
) -> int:
    """Append a child of `parent` that reaches `end`, with its ids copied to the pool; return its id."""
    node = counts[NODES]
    counts[NODES] += 1
    _attach(nodes, links, parent, node)
    _set_extent(nodes, node, end, chars_per_token)
    low, high = nodes[node].start // block, (end + block - 1) // block
    at = counts[POOL]
    links[node].pool = at - low
    links[node].first = 0
    pool[at : at + high - low] = ids[base + low : base + high]
    counts[POOL] = at + high - low
    return node


@njit()
def _insert(
    nodes: np.ndarray,
    links: np.ndarray,
    pool: np.ndarray,
    table: np.ndarray,
    counts: np.ndarray,
    splits: np.ndarray,
    ids: np.ndarray,
    base: int,
    tokens: int,
    page: int,
    block: int,
    chars_per_token: float,
) -> int:
    """Insert one prompt and return the deepest node of its whole pages (0 if it is shorter than a page)."""
    limit = tokens // page * page
    node, depth = 0, 0
    while depth < limit:
        slot = _find_child(nodes, links, pool, table, node, ids, base, depth, page, block)
        child = table[slot]
        if child == 0:
            child = _new_leaf(nodes, links, pool, counts, node, ids, base, limit, block, chars_per_token)
            table[slot] = child
            counts[HASHED] += 1
            return child
        depth = _matched_end(nodes, links, pool, child, ids, base, limit, page, block)
        node = child
        if depth < nodes[child].end:
            node = _split(nodes, links, counts, splits, table, slot, depth, chars_per_token)
            slot = _find_child(nodes, links, pool, table, node, pool, links[child].pool, depth, page, block)
            table[slot] = child
            counts[HASHED] += 1
    return node


@njit()
def relevel(nodes: np.ndarray, links: np.ndarray, top: int) -> int:
    """Recompute `level` of `top` and of everything below it from the level of its parent; return how many there are.

    No stack needed.
    """
    if top != 0:
        nodes[top].level = nodes[nodes[top].parent].level + 1
    node, seen = top, 1
    while True:
        child = links[node].first
        if child != 0:
            nodes[child].level = nodes[node].level + 1
            node = child
            seen += 1
            continue
        while node != top and links[node].next == 0:
            node = nodes[node].parent
        if node == top:
            return seen
        node = links[node].next
        nodes[node].level = nodes[nodes[node].parent].level + 1
        seen += 1


@njit()
def _relevel_splits(nodes: np.ndarray, links: np.ndarray, counts: np.ndarray, splits: np.ndarray, first: int) -> None:
    """Recompute `level` below the splits from row `first` on, in at most three times as many steps as there are nodes.

    Each lower half is done for itself, in any order: a big forest must not be walked for a few splits at its leaves.
    """
    budget = counts[NODES]
    for row in range(first, counts[SPLITS]):
        budget -= relevel(nodes, links, splits[row, 1])
        if budget < 0:
            relevel(nodes, links, 0)
            return


@njit(allocates=True)
def insert_many(
    nodes: np.ndarray,
    links: np.ndarray,
    pool: np.ndarray,
    table: np.ndarray,
    counts: np.ndarray,
    splits: np.ndarray,
    ids: np.ndarray,
    starts: np.ndarray,
    tokens: np.ndarray,
    out: np.ndarray,
    begin: int,
    page: int,
    block: int,
    chars_per_token: float,
) -> int:
    """Insert prompts begin..len(tokens)-1 and write their nodes to `out`; stop early when an array might overflow.

    The ids of prompt i start at ids[starts[i]] and it has tokens[i] tokens. An insert makes at most two nodes. Returns
    the first prompt that was not inserted; the caller grows the arrays and calls again.
    """
    done, first_split = begin, counts[SPLITS]
    while done < len(tokens):
        base, blocks = starts[done], (tokens[done] + block - 1) // block
        full = counts[NODES] + 2 > len(nodes) or counts[POOL] + blocks > len(pool)
        if full or 2 * (counts[HASHED] + 2) > len(table):
            break
        out[done] = _insert(
            nodes, links, pool, table, counts, splits, ids, base, tokens[done], page, block, chars_per_token
        )
        done += 1
    _relevel_splits(nodes, links, counts, splits, first_split)
    return done


@njit()
def rebuild(
    nodes: np.ndarray, links: np.ndarray, pool: np.ndarray, table: np.ndarray, counts: np.ndarray, page: int, block: int
) -> None:
    """Fill an empty `table` with every node that has ids."""
    for node in range(1, counts[NODES]):
        offset = links[node].pool
        if offset >= 0:
            parent, start = nodes[node].parent, nodes[node].start
            table[_find_child(nodes, links, pool, table, parent, pool, offset, start, page, block)] = node


@njit()
def append_nodes(
    nodes: np.ndarray,
    links: np.ndarray,
    counts: np.ndarray,
    parents: np.ndarray,
    lengths: np.ndarray,
    chars: np.ndarray,
) -> None:
    """Append nodes without ids, one per entry of `parents` (which may name entries appended by the same call)."""
    for i in range(len(parents)):
        node, parent = counts[NODES], parents[i]
        counts[NODES] += 1
        _attach(nodes, links, parent, node)
        links[node].pool = -1
        links[node].first = 0
        nodes[node].start = nodes[parent].end
        nodes[node].end = nodes[parent].end + lengths[i]
        nodes[node].chars = chars[i]
        nodes[node].chars_end = nodes[parent].chars_end + chars[i]
