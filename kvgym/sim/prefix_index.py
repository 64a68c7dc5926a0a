"""What a text-matching router remembers: which forest nodes it has sent to which worker, and when.

This is SGLang's multi-tenant character tree (sgl-router `tree.rs`) over the prefix forest. A *tag* (node, worker) says
that a prompt running through this node went to that worker. Contract:

- The tags of a worker are prefix-closed: a node is tagged only if all its ancestors are. `insert` tags whole paths and
  eviction removes leaf tags, so the longest tagged prefix ends at the deepest tagged node of the path.
- A tag is never more recent than the tag of its parent, since `insert` refreshes whole paths and never turns time
  back. Leaf-LRU eviction is therefore a walk over the tags in order of last access, deepest first.
- `match_tokens`, `match_chars`, `matched`, `tagged`, `deepest` and `owner` only answer; `insert`, `evict`,
  `remove_worker` and `on_split` write. Nothing here knows what the engines have really evicted.

Tags live in one open-addressing hash table (linear probing, backward-shift deletion, at most half full): memory follows
the number of tags, not workers x nodes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from kvgym.errors import SimulationError
from kvgym.jit import as_records, njit

if TYPE_CHECKING:
    from kvgym.workloads.forest import Forest

_EMPTY = -1
_WORKER_BITS = 20
_WORKER_MASK = (1 << _WORKER_BITS) - 1
_LOW = 0xFFFFFFFF
CHARS, TOKENS = 0, 1


@njit()
def _home(keys: np.ndarray, key: int) -> int:
    """Return the preferred slot of `key`; both products stay below 2**63 so that plain Python gives the same slot."""
    mixed = (key & _LOW) * 0x5851F42D + (key >> 32) * 0x2545F491
    return (mixed ^ (mixed >> 32)) & (len(keys) - 1)


@njit()
def _find(keys: np.ndarray, key: int) -> int:
    """Return the slot of `key`, or -1 - (the free slot where it belongs)."""
    slot = _home(keys, key)
    while keys[slot] != key:
        if keys[slot] == _EMPTY:
            return -1 - slot
        slot = (slot + 1) & (len(keys) - 1)
    return slot


@njit()
def _delete(keys: np.ndarray, times: np.ndarray, slot: int) -> None:
    """Empty `slot` and move later entries of its probe run up, so that no tombstones are needed."""
    mask = len(keys) - 1
    hole = slot
    while True:
        slot = (slot + 1) & mask
        if keys[slot] == _EMPTY:
            break
        # An entry may fill the hole only if its probe run starts at or before the hole.
        if ((slot - _home(keys, keys[slot])) & mask) >= ((slot - hole) & mask):
            keys[hole] = keys[slot]
            times[hole] = times[slot]
            hole = slot
    keys[hole] = _EMPTY


@njit()
def _rehash(keys: np.ndarray, times: np.ndarray, new_keys: np.ndarray, new_times: np.ndarray) -> None:
    """Copy every tag into the larger, empty table."""
    for i in range(len(keys)):
        if keys[i] != _EMPTY:
            slot = -1 - _find(new_keys, keys[i])
            new_keys[slot] = keys[i]
            new_times[slot] = times[i]


@njit()
def _insert(
    nodes: np.ndarray,
    keys: np.ndarray,
    times: np.ndarray,
    holders: np.ndarray,
    totals: np.ndarray,
    used: np.ndarray,
    worker: int,
    node: int,
    time_s: float,
) -> bool:
    """Tag the path of `node` for `worker`; False (and nothing done) if the table might become more than half full."""
    if 2 * (used[0] + nodes[node].level) > len(keys):
        return False
    at = np.int64(node)
    while at > 0:
        slot = _find(keys, (at << _WORKER_BITS) | worker)
        if slot >= 0:
            times[slot] = max(times[slot], time_s)
        else:
            keys[-1 - slot] = (at << _WORKER_BITS) | worker
            times[-1 - slot] = time_s
            used[0] += 1
            if holders[at, 0] == 0:
                holders[at, 1] = worker
            holders[at, 0] += 1
            totals[CHARS, worker] += nodes[at].chars
            totals[TOKENS, worker] += nodes[at].end - nodes[at].start
        at = np.int64(nodes[at].parent)
    return True


@njit()
def _split(keys: np.ndarray, times: np.ndarray, holders: np.ndarray, used: np.ndarray, upper: int, lower: int) -> bool:
    """Give `upper` the tags of `lower`; False (and nothing done) if the table might become more than half full."""
    workers = holders[lower, 0]
    if 2 * (used[0] + workers) > len(keys):
        return False
    holders[upper, 1] = holders[lower, 1]
    worker = 0
    while workers > 0:
        slot = _find(keys, (np.int64(lower) << _WORKER_BITS) | worker)
        if slot >= 0:
            workers -= 1
            key = (np.int64(upper) << _WORKER_BITS) | worker
            free = _find(keys, key)
            if free < 0:
                keys[-1 - free] = key
                times[-1 - free] = times[slot]
                used[0] += 1
                holders[upper, 0] += 1
        worker += 1
    return True


@njit()
def _remove(
    nodes: np.ndarray,
    keys: np.ndarray,
    times: np.ndarray,
    holders: np.ndarray,
    totals: np.ndarray,
    used: np.ndarray,
    victims: np.ndarray,
    max_chars: int,
) -> None:
    """Remove the tags `victims` in order, each only while its worker still has more than `max_chars` characters."""
    for key in victims:
        worker = key & _WORKER_MASK
        node = key >> _WORKER_BITS
        if totals[CHARS, worker] > max_chars:
            _delete(keys, times, _find(keys, key))
            used[0] -= 1
            holders[node, 0] -= 1
            totals[CHARS, worker] -= nodes[node].chars
            totals[TOKENS, worker] -= nodes[node].end - nodes[node].start


@njit()
def _deepest(nodes: np.ndarray, holders: np.ndarray, node: int) -> np.int64:
    """Return the deepest node of the path that any worker has a tag on; 0 if there is none."""
    at = np.int64(node)
    while at > 0 and holders[at, 0] == 0:
        at = np.int64(nodes[at].parent)
    return at


@njit()
def _tagged(keys: np.ndarray, node: int, out: np.ndarray) -> None:
    """Write to `out` which workers have a tag on `node`."""
    for worker in range(len(out)):
        out[worker] = _find(keys, (np.int64(node) << _WORKER_BITS) | worker) >= 0


@njit()
def _owner(keys: np.ndarray, holders: np.ndarray, node: int) -> int:
    """Return the owner of a tagged `node`, after handing it to the lowest holder if the old owner has lost its tag."""
    key = np.int64(node) << _WORKER_BITS
    if _find(keys, key | holders[node, 1]) < 0:
        worker = 0
        while _find(keys, key | worker) < 0:
            worker += 1
        holders[node, 1] = worker
    return holders[node, 1]


@njit()
def _match(nodes: np.ndarray, keys: np.ndarray, holders: np.ndarray, node: int, unit: int, out: np.ndarray) -> None:
    """Write to `out` each worker's longest tagged prefix of `node`, in characters or tokens."""
    top = _deepest(nodes, holders, node)
    for worker in range(len(out)):
        at = top
        while at > 0 and _find(keys, (at << _WORKER_BITS) | worker) < 0:
            at = np.int64(nodes[at].parent)
        out[worker] = nodes[at].chars_end if unit == CHARS else nodes[at].end


class PrefixIndex:
    """Which nodes of a forest were sent to which worker, with last access, bounded by leaf-LRU eviction.

    The forest may grow and split between calls: it is read anew at every call, and the tags follow its splits.

    Args:
        forest: prefix forest; `nodes` (NODE records) and `splits` (rows of upper, lower, ...) are used.
        workers: number of workers, ids 0 .. workers-1.
        max_chars: characters that `evict` leaves to each worker; None: no limit.
    """

    def __init__(self, forest: Forest, workers: int, max_chars: int | None = None) -> None:
        self.forest = forest
        self.workers = workers
        self.max_chars = max_chars
        self._keys = np.full(1024, _EMPTY, np.int64)
        self._times = np.zeros(1024)
        self._used = np.zeros(1, np.int64)
        self._totals = np.zeros((2, workers), np.int64)
        # Per forest node: number of workers with a tag, and the owner.
        self._holders = np.zeros((len(forest.nodes), 2), np.int32)
        self._splits = len(forest.splits)

    @property
    def chars(self) -> np.ndarray:
        """Characters under tags per worker, int64 (workers,); a live view, not to be written."""
        return self._totals[CHARS]

    @property
    def tokens(self) -> np.ndarray:
        """Tokens under tags per worker, int64 (workers,); a live view, not to be written."""
        return self._totals[TOKENS]

    def __len__(self) -> int:
        return int(self._used[0])

    def insert(self, worker: int, node: int, time_s: float) -> None:
        """Tag the whole path of `node` for `worker`, and refresh the last access of what was tagged already."""
        nodes = self._sync()
        while not _insert(
            nodes, self._keys, self._times, self._holders, self._totals, self._used, worker, node, time_s
        ):
            self._grow(int(nodes["level"][node]))

    def match_tokens(self, node: int) -> np.ndarray:
        """Return each worker's longest tagged prefix of the path to `node` in tokens, int64 (workers,)."""
        return self._match(node, TOKENS)

    def match_chars(self, node: int) -> np.ndarray:
        """Return each worker's longest tagged prefix of the path to `node` in characters, int64 (workers,)."""
        return self._match(node, CHARS)

    def matched(self, node: int) -> int:
        """Return the deepest node on the path to `node` that any worker has a tag on (0: none)."""
        return int(_deepest(self._sync(), self._holders, node))

    def tagged(self, node: int) -> np.ndarray:
        """Return which workers have a tag on `node`, bool (workers,); nobody has one on the root."""
        self._sync()
        out = np.empty(self.workers, np.bool_)
        _tagged(self._keys, node, out)
        return out

    def deepest(self, node: int) -> tuple[int, np.ndarray]:
        """Return the longest prefix of `node` that any worker holds, in characters, and who holds it.

        The second value is bool (workers,): the workers tagged on the deepest matched node, all False if there is none.
        """
        deepest = self.matched(node)
        return int(self.forest.nodes["chars_end"][deepest]), self.tagged(deepest)

    def owner(self, node: int) -> int:
        """Return one worker with a tag on `node`, always the same while it has it: the one that brought the node first.

        When that worker has lost its tag, the one with the lowest id takes over.

        Raises:
            SimulationError: no worker has a tag on `node`.
        """
        self._sync()
        if self._holders[node, 0] == 0:
            raise SimulationError(f"no worker has a tag on node {node}; ask about the node that matched() returns")
        return int(_owner(self._keys, self._holders, node))

    def evict(self, max_chars: int | None = None) -> None:
        """Remove the least recently used leaf tags of each worker until it has at most `max_chars` characters.

        A leaf is a tag that no child of its node shares with it. Tags of equal age go deepest first, then by node id.
        The default limit is the constructor's; without any limit nothing is removed.
        """
        nodes = self._sync()
        limit = self.max_chars if max_chars is None else max_chars
        if limit is None:
            return
        over = self.chars > limit
        if over.any():
            self._remove(nodes, over, limit)

    def remove_worker(self, worker: int) -> None:
        """Remove all tags of `worker`."""
        # The limit -1 is below any total, so that every tag goes, those without characters too.
        self._remove(self._sync(), np.arange(self.workers) == worker, -1)

    def on_split(self, upper: int, lower: int) -> None:
        """Give the new node `upper` the tags of `lower`, the old id of the split node, which lies below it now.

        Totals do not change: the two halves have the characters and tokens of the whole. Called for every row of
        `forest.splits` in order; a repeated call changes nothing.
        """
        self._cover(len(self.forest.nodes))
        while not _split(self._keys, self._times, self._holders, self._used, upper, lower):
            self._grow(self.workers)

    def _match(self, node: int, unit: int) -> np.ndarray:
        out = np.empty(self.workers, np.int64)
        _match(self._sync(), self._keys, self._holders, node, unit, out)
        return out

    def _sync(self) -> np.ndarray:
        """Follow the growth and the splits of the forest; return its nodes in the form that compiled code takes."""
        nodes = self.forest.nodes
        if len(nodes) > len(self._holders):
            self._cover(len(nodes))
        splits = self.forest.splits
        while self._splits < len(splits):
            row = splits[self._splits]
            self._splits += 1
            self.on_split(int(row[0]), int(row[1]))
        return as_records(nodes)

    def _cover(self, nodes: int) -> None:
        """Make room for so many forest nodes."""
        have = len(self._holders)
        if nodes > have:
            self._holders = np.concatenate((self._holders, np.zeros((max(nodes, 2 * have) - have, 2), np.int32)))

    def _grow(self, tags: int) -> None:
        """Enlarge the table so that `tags` more tags leave it at most half full."""
        size = len(self._keys)
        while size < 2 * (len(self) + tags):
            size *= 2
        keys, times = np.full(size, _EMPTY, np.int64), np.zeros(size)
        _rehash(self._keys, self._times, keys, times)
        self._keys, self._times = keys, times

    def _remove(self, nodes: np.ndarray, chosen: np.ndarray, max_chars: int) -> None:
        """Remove the oldest leaf tags of the `chosen` workers down to `max_chars`."""
        slots = np.flatnonzero(self._keys != _EMPTY)
        slots = slots[chosen[self._keys[slots] & _WORKER_MASK]]
        keys, times = self._keys[slots], self._times[slots]
        ids = keys >> _WORKER_BITS
        # A parent is at least as recent as its children and ends before them: in this order each tag is a leaf.
        order = np.lexsort((ids, -nodes["end"][ids], times))
        _remove(nodes, self._keys, self._times, self._holders, self._totals, self._used, keys[order], max_chars)
