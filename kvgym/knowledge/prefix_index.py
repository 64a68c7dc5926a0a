"""A prefix index remembers which forest nodes each worker holds, since when, within bounds.

This is SGLang's multi-tenant character tree (sgl-router `tree.rs`) over the prefix forest. A *tag* (node, worker) says
that a prompt running through this node went to that worker. Contract:

- `insert` tags whole paths, and what is forgotten goes leaf by leaf, so the tags of a worker are prefix-closed: a node
  is tagged only if all its ancestors are, and the longest tagged prefix ends at the deepest tagged node of the path.
  Only `remove`, for those who are told of single removals, can leave a hole; `match_unbroken` stops there.
- A tag is never more recent than the tag of its parent, since `insert` refreshes whole paths and never turns time
  back. What is forgotten first is the least recently used tag, which is a leaf.
- `match_tokens`, `match_chars`, `match_unbroken`, `matched`, `tagged`, `deepest` and `owner` only answer; `insert`,
  `remove`, `evict`, `forget`, `remove_worker` and `on_split` write. Nothing here knows what the engines really evict.

The compiled part is in `tags`; memory follows the number of tags, not workers x nodes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from kvgym.errors import SimulationError
from kvgym.jit.door import as_records
from kvgym.knowledge import entry_index
from kvgym.knowledge.tags import CHARS, TOKENS, USED, WORKER_MASK, Tags, more_tags, new_tags

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kvgym.forest.forest import Forest

UNBOUNDED = 1 << 62
"""A limit in tokens that nothing reaches."""


class PrefixIndex:
    """Which nodes of a forest each worker holds as far as is known, with last use, bounded by leaf-LRU forgetting.

    The forest may grow and split between calls: it is read anew at every call, and the tags follow its splits.

    Args:
        forest: prefix forest; `nodes` (NODE records) and `splits` (rows of upper, lower, ...) are used.
        workers: number of workers, ids 0 .. workers-1.
        max_chars: characters that `evict` leaves to each worker; None: no limit.
        max_tokens: tokens that each worker has at most after every `insert`, (workers,): the least recently used leaves
            are forgotten, in time that follows their number; None: no limit.

    Raises:
        SimulationError: more workers than 2^20 - 1.
    """

    def __init__(
        self, forest: Forest, workers: int, max_chars: int | None = None, max_tokens: Sequence[int] | None = None
    ) -> None:
        if workers > WORKER_MASK:
            raise SimulationError(f"an index takes at most {WORKER_MASK} workers, got {workers}")
        self.forest = forest
        self.workers = workers
        self.max_chars = max_chars
        self.max_tokens = [UNBOUNDED] * workers if max_tokens is None else list(max_tokens)
        self.limits = np.array(self.max_tokens, np.int64)
        self._tags = new_tags(workers, len(forest.nodes))
        self._splits = len(forest.splits)

    @property
    def chars(self) -> np.ndarray:
        """Characters under tags per worker, int64 (workers,), whole nodes; a live view, not to be written."""
        return self._tags.totals[CHARS]

    @property
    def tokens(self) -> np.ndarray:
        """Tokens under tags per worker, int64 (workers,); a live view, not to be written."""
        return self._tags.totals[TOKENS]

    @property
    def tags(self) -> Tags:
        """The compiled part: another one after growth."""
        return self._tags

    def reserve(self, room: int) -> None:
        """Make room for so many more tags."""
        self._grow(room)

    @property
    def nbytes(self) -> int:
        """Memory that the index takes now."""
        return sum(array.nbytes for array in self._tags)

    def __len__(self) -> int:
        return int(self._tags.counts[USED])

    def insert(self, worker: int, node: int, time_s: float, tokens: int | None = None) -> None:
        """Tag the path of `node` for `worker`, refresh what was tagged already, and keep to `max_tokens`.

        Args:
            worker: who holds it.
            node: forest node.
            time_s: when it was used.
            tokens: how many tokens of the path are held, the last node perhaps in part; None: the whole path.
        """
        nodes = self._sync()
        if tokens is None:
            tokens = int(nodes["end"][node])
        limit = self.max_tokens[worker]
        while not entry_index.insert(self._tags, nodes, worker, node, tokens, time_s, limit):
            self._grow(int(nodes["level"][node]))

    def remove(self, worker: int, node: int, first: int, last: int) -> None:
        """Note that `worker` has dropped tokens `first` .. `last` - 1 of the path of `node`; what is absent is skipped.

        Tags of deeper nodes stay: they may be removed later, or never if that was not told.
        """
        nodes = self._sync()
        entry_index.remove(self._tags, nodes, worker, node, first, last)

    def match_tokens(self, node: int) -> np.ndarray:
        """Return each worker's longest tagged prefix of the path to `node` in tokens, int64 (workers,)."""
        return self._match(node, TOKENS)

    def match_chars(self, node: int) -> np.ndarray:
        """Return each worker's longest tagged prefix of the path to `node` in characters, int64 (workers,)."""
        return self._match(node, CHARS)

    def match_unbroken(self, node: int) -> np.ndarray:
        """Return the tokens of the path to `node` that each worker holds before the first hole, int64 (workers,)."""
        nodes, out = self._sync(), np.empty(self.workers, np.int64)
        entry_index.match_unbroken(self._tags, nodes, node, out)
        return out

    def matched(self, node: int) -> int:
        """Return the deepest node on the path to `node` that any worker has a tag on (0: none)."""
        nodes = self._sync()
        return int(entry_index.deepest(self._tags, nodes, node))

    def tagged(self, node: int) -> np.ndarray:
        """Return which workers have a tag on `node`, bool (workers,); nobody has one on the root."""
        self._sync()
        out = np.empty(self.workers, np.bool_)
        entry_index.tagged(self._tags, node, out)
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
        if self._tags.holders[node, 0] == 0:
            raise SimulationError(f"no worker has a tag on node {node}; ask about the node that matched() returns")
        return int(entry_index.owner(self._tags, node))

    def evict(self, max_chars: int | None = None) -> None:
        """Remove the least recently used tags of each worker until it has at most `max_chars` characters.

        Tags of equal age go in the order of their insertion, the end of a path before its beginning. The default limit
        is the constructor's; without any limit nothing is removed.
        """
        limit = self.max_chars if max_chars is None else max_chars
        if limit is None:
            return
        nodes = self._sync()
        for worker in np.flatnonzero(self.chars > limit):
            entry_index.forget(self._tags, nodes, worker, CHARS, limit)

    def forget(self, worker: int, max_tokens: int) -> None:
        """Remove the least recently used tags of `worker` until it has at most `max_tokens` tokens."""
        nodes = self._sync()
        entry_index.forget(self._tags, nodes, worker, TOKENS, max_tokens)

    def remove_worker(self, worker: int) -> None:
        """Remove all tags of `worker`."""
        self.forget(worker, -1)  # below any total, so that every tag goes

    def on_split(self, upper: int, lower: int) -> None:
        """Give the new node `upper` the tags of `lower`, the old id of the split node, which lies below it now.

        Totals do not change: the two halves have the characters and tokens of the whole. Called for every row of
        `forest.splits` in order; a repeated call changes nothing.
        """
        self._cover(len(self.forest.nodes))
        while not entry_index.split(self._tags, as_records(self.forest.nodes), upper, lower):
            self._grow(self.workers)

    def _match(self, node: int, unit: int) -> np.ndarray:
        nodes, out = self._sync(), np.empty(self.workers, np.int64)
        entry_index.match(self._tags, nodes, node, unit, out)
        return out

    def _sync(self) -> np.ndarray:
        """Follow the growth and the splits of the forest; return its nodes in the form that compiled code takes.

        It may replace `_tags`, so it comes first in every method.
        """
        nodes = self.forest.nodes
        if len(nodes) > len(self._tags.holders):
            self._cover(len(nodes))
        splits = self.forest.splits
        while self._splits < len(splits):
            row = splits[self._splits]
            self._splits += 1
            self.on_split(int(row[0]), int(row[1]))
        return as_records(nodes)

    def _cover(self, nodes: int) -> None:
        """Make room for so many forest nodes."""
        old = self._tags.holders
        if nodes > len(old):
            more = np.zeros((max(nodes, 2 * len(old)) - len(old), 2), np.int32)
            self._tags = self._tags._replace(holders=np.concatenate((old, more)))

    def _grow(self, room: int) -> None:
        """Enlarge the table so that at least `room` more tags fit."""
        self._tags = more_tags(self._tags, room)
        entry_index.rehash(self._tags)
