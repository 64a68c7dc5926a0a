"""Tags are a prefix index in compiled code: a hash table of (node, worker) pairs, in order of use per worker.

A *tag* says that a worker holds the tokens of a forest node up to `end`. Tags lie in `entries`, found through an
open-addressing table (linear probing, backward-shift deletion, at most half full): memory follows the number of tags,
not workers x nodes. Each worker's tags are linked from the least to the most recently used one:

- time never turns back: what was used at `time_s` moves behind everything that is not newer;
- a path is refreshed from its end to its beginning, so a node stands behind all nodes below it, and the oldest tag of a
  worker whose tags are closed under prefixes is always a leaf.

Functions that add tags need room (`has_room`); nothing here allocates. Chars are counted for whole nodes.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from kvgym.jit.door import i64, njit, record_zeros
from kvgym.jit.tuples import whole

TAG = np.dtype(
    [
        ("key", np.int64),  # node << WORKER_BITS | worker
        ("time_s", np.float64),  # last use
        ("end", np.int32),  # tokens held, counted from the beginning of the prompt; within the node
        ("older", np.int32),  # neighbours in the worker's order of use; -1: none. Free entries: `newer` is the next one
        ("newer", np.int32),
    ],
    align=True,
)
WORKER_BITS = 20
WORKER_MASK = (1 << WORKER_BITS) - 1
CHARS, TOKENS = 0, 1
OLDEST, NEWEST = 0, 1
USED, FREE = 0, 1
_LOW = 0xFFFFFFFF


@whole
class Tags(NamedTuple):
    """All tags of one index.

    Shapes: entries (tags,), table (power of two >= 2 * tags,) of entry ids or -1, queue (workers, 2): oldest and newest
    entry, totals (2, workers): characters and tokens under tags, holders (forest nodes, 2): workers with a tag and the
    owner, counts (2,): tags in use and the first free entry.
    """

    entries: np.ndarray
    table: np.ndarray
    queue: np.ndarray
    totals: np.ndarray
    holders: np.ndarray
    counts: np.ndarray


def new_tags(workers: int, nodes: int) -> Tags:
    """Return an empty set of tags for so many workers and forest nodes."""
    tags = Tags(
        entries=record_zeros(512, TAG),
        table=np.full(1024, -1, np.int32),
        queue=np.full((workers, 2), -1, np.int32),
        totals=np.zeros((2, workers), np.int64),
        holders=np.zeros((nodes, 2), np.int32),
        counts=np.array([0, -1], np.int64),
    )
    _link_free(tags, 0)
    return tags


def more_tags(tags: Tags, room: int) -> Tags:
    """Return the same tags with room for at least `room` more; the table is left for `rehash` to fill."""
    old = size = len(tags.entries)
    while size < tags.counts[USED] + room:
        size *= 2
    entries = record_zeros(size, TAG)
    entries[:old] = tags.entries
    grown = tags._replace(entries=entries, table=np.full(2 * size, -1, np.int32))
    _link_free(grown, old)
    return grown


def _link_free(tags: Tags, first: int) -> None:
    """Put the entries from `first` on in front of the free ones."""
    newer = tags.entries["newer"]
    newer[first:] = np.arange(first + 1, len(newer) + 1)
    newer[-1] = tags.counts[FREE]
    tags.counts[FREE] = first


@njit()
def has_room(t: Tags, more: int) -> bool:
    """Whether `more` tags can be added."""
    return t.counts[USED] + more <= len(t.entries)


@njit()
def home(t: Tags, key: int) -> int:
    """Return the preferred slot of `key`; both products stay below 2**63 so that plain Python gives the same slot."""
    mixed = (key & _LOW) * 0x5851F42D + (key >> 32) * 0x2545F491
    return (mixed ^ (mixed >> 32)) & (len(t.table) - 1)


@njit()
def find(t: Tags, key: int) -> int:
    """Return the table slot of `key`, or -1 - (the free slot where it belongs)."""
    slot = home(t, key)
    while t.table[slot] >= 0:
        if t.entries[t.table[slot]].key == key:
            return slot
        slot = (slot + 1) & (len(t.table) - 1)
    return -1 - slot


@njit()
def entry_of(t: Tags, node: int, worker: int) -> int:
    """Return the entry of a tag, or -1."""
    slot = find(t, (i64(node) << WORKER_BITS) | worker)
    return i64(t.table[slot]) if slot >= 0 else i64(-1)


@njit()
def rehash(t: Tags) -> None:
    """Enter all tags into the empty table."""
    for worker in range(len(t.queue)):
        entry = i64(t.queue[worker, OLDEST])
        while entry >= 0:
            t.table[-1 - find(t, t.entries[entry].key)] = entry
            entry = i64(t.entries[entry].newer)


@njit()
def leave_table(t: Tags, slot: int) -> None:
    """Empty `slot` and move later entries of its probe run up, so that no tombstones are needed."""
    mask = len(t.table) - 1
    hole = slot
    while True:
        slot = (slot + 1) & mask
        if t.table[slot] < 0:
            break
        # An entry may fill the hole only if its probe run starts at or before the hole.
        if ((slot - home(t, t.entries[t.table[slot]].key)) & mask) >= ((slot - hole) & mask):
            t.table[hole] = t.table[slot]
            hole = slot
    t.table[hole] = -1


@njit()
def unlink(t: Tags, worker: int, entry: int) -> None:
    """Take `entry` out of its worker's order of use."""
    tag = t.entries[entry]
    if tag.older >= 0:
        t.entries[tag.older].newer = tag.newer
    else:
        t.queue[worker, OLDEST] = tag.newer
    if tag.newer >= 0:
        t.entries[tag.newer].older = tag.older
    else:
        t.queue[worker, NEWEST] = tag.older


@njit()
def link_after(t: Tags, worker: int, entry: int, older: int) -> None:
    """Put `entry` right behind `older` in its worker's order of use (-1: make it the oldest)."""
    newer = i64(t.entries[older].newer) if older >= 0 else i64(t.queue[worker, OLDEST])
    t.entries[entry].older, t.entries[entry].newer = older, newer
    if older >= 0:
        t.entries[older].newer = entry
    else:
        t.queue[worker, OLDEST] = entry
    if newer >= 0:
        t.entries[newer].older = entry
    else:
        t.queue[worker, NEWEST] = entry


@njit()
def link(t: Tags, worker: int, entry: int) -> None:
    """Put `entry` behind everything of its worker that is not newer."""
    older = i64(t.queue[worker, NEWEST])
    while older >= 0 and t.entries[older].time_s > t.entries[entry].time_s:
        older = i64(t.entries[older].older)
    link_after(t, worker, entry, older)


@njit()
def new_entry(t: Tags, key: int, slot: int) -> int:
    """Take a free entry for `key` and enter it at the free table slot -1 - `slot`."""
    entry = t.counts[FREE]
    t.counts[FREE] = t.entries[entry].newer
    t.counts[USED] += 1
    t.table[-1 - slot] = entry
    t.entries[entry].key = key
    return entry


@njit()
def use(t: Tags, nodes: np.ndarray, worker: int, node: int, end: int, time_s: float) -> None:
    """Tag `node` for `worker` up to `end` tokens, or move its tag there, and refresh its last use."""
    key = (i64(node) << WORKER_BITS) | worker
    slot = find(t, key)
    if slot >= 0:
        entry = i64(t.table[slot])
        tag = t.entries[entry]
        t.totals[TOKENS, worker] += end - tag.end
        tag.end = end
        if time_s >= tag.time_s:
            tag.time_s = time_s
            unlink(t, worker, entry)
            link(t, worker, entry)
        return
    entry = new_entry(t, key, slot)
    tag = t.entries[entry]
    tag.time_s, tag.end = time_s, end
    link(t, worker, entry)
    if t.holders[node, 0] == 0:
        t.holders[node, 1] = worker
    t.holders[node, 0] += 1
    t.totals[CHARS, worker] += nodes[node].chars
    t.totals[TOKENS, worker] += end - nodes[node].start


@njit()
def drop(t: Tags, nodes: np.ndarray, worker: int, node: int) -> None:
    """Remove the tag of `node` for `worker`, which must exist."""
    slot = find(t, (i64(node) << WORKER_BITS) | worker)
    entry = i64(t.table[slot])
    tag = t.entries[entry]
    t.totals[CHARS, worker] -= nodes[node].chars
    t.totals[TOKENS, worker] -= tag.end - nodes[node].start
    t.holders[node, 0] -= 1
    unlink(t, worker, entry)
    leave_table(t, slot)
    tag.newer = t.counts[FREE]
    t.counts[FREE] = entry
    t.counts[USED] -= 1


@njit()
def insert(t: Tags, nodes: np.ndarray, worker: int, node: int, tokens: int, time_s: float) -> bool:
    """Tag the first `tokens` tokens of the path of `node` for `worker`; False (and nothing done) without room."""
    if not has_room(t, i64(nodes[node].level)):
        return False
    at = i64(node)
    while at > 0:
        if nodes[at].start < tokens:
            use(t, nodes, worker, at, min(tokens, i64(nodes[at].end)), time_s)
        at = i64(nodes[at].parent)
    return True


@njit()
def forget(t: Tags, nodes: np.ndarray, worker: int, unit: int, limit: int) -> None:
    """Remove the oldest tags of `worker` until it has at most `limit` characters or tokens (-1: all of them)."""
    while t.totals[unit, worker] > limit and t.queue[worker, OLDEST] >= 0:
        drop(t, nodes, worker, t.entries[t.queue[worker, OLDEST]].key >> WORKER_BITS)


@njit()
def remove(t: Tags, nodes: np.ndarray, worker: int, node: int, first: int, last: int) -> None:
    """Remove tokens `first` .. `last` - 1 of the path of `node`: whole tags and the end of one; absent ones stay so.

    Tags below `last` stay, even if this leaves a hole before them.
    """
    at = i64(node)
    while at > 0 and nodes[at].end > first:
        entry = entry_of(t, at, worker)
        if entry >= 0 and nodes[at].start < last:
            if nodes[at].start >= first:
                drop(t, nodes, worker, at)
            elif t.entries[entry].end > first:
                t.totals[TOKENS, worker] -= t.entries[entry].end - first
                t.entries[entry].end = first
        at = i64(nodes[at].parent)


@njit()
def split(t: Tags, nodes: np.ndarray, upper: int, lower: int) -> bool:
    """Give `upper` the tags of `lower`; False (and nothing done) without room.

    Each new tag stands right behind the one of `lower`, as recent as that. A tag that reached only into the upper half
    is left without tokens of the lower one and goes.
    """
    left = i64(t.holders[lower, 0])
    if not has_room(t, left):
        return False
    if left > 0:
        t.holders[upper, 1] = t.holders[lower, 1]
    worker = 0
    while left > 0:
        below = entry_of(t, lower, worker)
        if below >= 0:
            left -= 1
            key = (i64(upper) << WORKER_BITS) | worker
            slot = find(t, key)
            if slot < 0:
                above = new_entry(t, key, slot)
                t.entries[above].time_s = t.entries[below].time_s
                t.entries[above].end = min(t.entries[below].end, nodes[upper].end)
                link_after(t, worker, above, below)
                t.holders[upper, 0] += 1
                if t.entries[below].end <= nodes[lower].start:
                    t.entries[below].end = nodes[lower].start  # its tokens are those of the upper half now
                    drop(t, nodes, worker, lower)
        worker += 1
    return True


@njit()
def deepest(t: Tags, nodes: np.ndarray, node: int) -> int:
    """Return the deepest node of the path that any worker has a tag on; 0 if there is none."""
    at = i64(node)
    while at > 0 and t.holders[at, 0] == 0:
        at = i64(nodes[at].parent)
    return at
