"""A router believes each worker's cache to hold what its own prefix index says, bounded by the KV capacity."""

from __future__ import annotations

from kvgym.knowledge.prefix_index import PrefixIndex
from kvgym.types import FleetSpec

_SLACK = 8
"""A worker's index is trimmed when it is an eighth over its capacity; lbgr's constants were chosen with that."""


class CacheModel(PrefixIndex):
    """A prefix index that forgets as an LRU cache of the worker's size would: oldest leaves first, counted in tokens.

    It knows only what was sent where. The engine also holds generated tokens, may evict by another policy and in whole
    runs, so this is a model and not the truth; but unlike an unbounded index it does not promise hits on prefixes that
    left the cache long ago.

    Args:
        spec: the fleet; capacities are its KV tokens per worker.
    """

    def __init__(self, spec: FleetSpec) -> None:
        super().__init__(spec.forest, spec.workers)
        self._capacity = spec.capacity_tokens

    def remember(self, worker: int, node: int, time_s: float) -> None:
        """Note that `worker` holds the path of `node` since `time_s`, and drop what does not fit any more."""
        self.insert(worker, node, time_s)
        capacity = self._capacity[worker]
        if self.tokens[worker] > capacity + capacity // _SLACK:
            self.forget(worker, capacity)
