"""A mirror follows another radix tree node by node, so that a live server can evict by a kvgym policy.

The other tree (SGLang's, in a server) finds matches and owns the KV memory; this one repeats each of its operations on
the compiled cache and answers which tails must go. It sees no token: each node of the other tree is one forest node
here, made, split, cut and freed together with it, so memory is bounded by what is resident.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from kvgym.engine.cache.policy import Policy
from kvgym.engine.handle import CacheHandle
from kvgym.errors import SimulationError
from kvgym.forest.forest import NODE
from kvgym.jit.door import as_records, record_zeros

ROOT = 0
"""Node of the empty prefix."""


class MirrorCache:
    """One worker's cache, driven by another tree.

    Nodes are named by the numbers that `add` and `split` give out; a prefix is a node and its whole path.

    Args:
        policy: eviction policy.
        capacity_tokens: KV pool of the other cache (policies that count phases need it).
        page_size: tokens per page; all lengths are whole pages.
        seed: of the policy's random stream; the same seed and operations evict the same tokens as `CacheHandle`.
    """

    def __init__(self, policy: Policy, capacity_tokens: int, page_size: int = 1, seed: int = 0) -> None:
        pool = capacity_tokens // page_size * page_size
        self._handle = CacheHandle(record_zeros(1, NODE), policy, pool, page_size, seed=seed)
        self._handle.cache.nodes["parent"][ROOT] = -1
        self._free: list[int] = []

    @property
    def resident_tokens(self) -> int:
        """Tokens in the tree."""
        return self._handle.resident_tokens(0)

    def match(self, node: int) -> None:
        """The other tree has matched the path of `node`, to its end."""
        self._handle.match(0, node, self._end(node))

    def add(self, parent: int, tokens: int) -> int:
        """Return a node for a leaf of `tokens` tokens that the other tree has made below `parent`; then `insert` it."""
        if not self._free:
            self._grow()
        node, nodes = self._free.pop(), self._handle.cache.nodes
        start, level = self._end(parent), int(nodes["level"][parent]) + 1
        for name, value in (("parent", parent), ("level", level), ("start", start), ("end", start + tokens)):
            nodes[name][node] = value
        self._fit_path(level)
        return node

    def insert(self, node: int, priority: int = 0, inserted_tokens: int = 0) -> None:
        """The other tree has inserted the path of `node`, to its end; see `CacheHandle.insert`.

        Raises:
            SimulationError: the path does not fit the pool: the trees have parted.
        """
        self._handle.insert(0, node, self._end(node), priority, inserted_tokens)

    def split(self, node: int, depth_tokens: int, below: Sequence[int]) -> int:
        """Return a node for the upper half of `node`, which the other tree has split; a match or insert follows.

        Args:
            node: keeps its number and becomes the lower half.
            depth_tokens: depth of the cut, from the beginning of the prompt.
            below: the descendants of `node`.
        """
        if not self._free:
            self._grow()
        upper, handle = self._free.pop(), self._handle
        handle.split_node(0, node, upper, depth_tokens)
        levels = handle.cache.nodes["level"]
        lower = [node, *below]
        levels[lower] += 1
        self._fit_path(int(levels[lower].max()))
        return upper

    def lock(self, node: int) -> None:
        """A request holds the path of `node` from now on."""
        self._handle.lock(0, self._slot(node))

    def unlock(self, node: int) -> None:
        """A request lets go of the path of `node`.

        Raises:
            SimulationError: nobody holds it.
        """
        self._handle.unlock(0, self._slot(node))

    def evict(self, tokens: int) -> list[tuple[int, int]]:
        """Let the policy free `tokens` tokens if it can.

        Returns:
            (node, tokens that it keeps) in an order in which the other tree can repeat it: children before parents. A
            node that keeps nothing is gone, its number may come again.
        """
        gone = self._handle.evict_slots(0, tokens)
        nodes, slots = self._handle.cache.nodes, self._handle.cache.slots
        removed = slots["node"][gone].tolist()
        worker = self._handle.cache.workers[0]
        leaves = self._handle.cache.order[0, : int(worker["leaves"])]
        left, held = slots["d1"][leaves], slots["node"][leaves]
        cut = np.flatnonzero(left < nodes["end"][held])
        shorter = [(int(held[i]), int(left[i] - nodes["start"][held[i]])) for i in cut]
        nodes["end"][held[cut]] = left[cut]
        self._free.extend(removed)
        return [(node, 0) for node in removed] + shorter

    def check(self) -> None:
        """Check every invariant of the cache.

        Raises:
            SimulationError: the first broken one.
        """
        self._handle.check()

    def _end(self, node: int) -> int:
        return int(self._handle.cache.nodes["end"][node])

    def _slot(self, node: int) -> int:
        if node == ROOT:
            return ROOT
        slot = self._handle.find(0, node)
        if slot < 0:
            raise SimulationError(f"node {node} is not resident: the mirror and its tree have parted")
        return slot

    def _grow(self) -> None:
        cache = self._handle.cache
        old = len(cache.nodes)
        nodes = np.zeros(max(64, 2 * old), NODE)
        nodes[:old] = cache.nodes
        self._handle.cache = cache._replace(nodes=as_records(nodes))
        self._free.extend(range(len(nodes) - 1, old - 1, -1))

    def _fit_path(self, level: int) -> None:
        cache = self._handle.cache
        if level + 2 > len(cache.path):
            self._handle.cache = cache._replace(path=np.zeros(2 * level + 2, np.int32))
