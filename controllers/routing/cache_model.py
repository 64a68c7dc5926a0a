"""What a router believes each worker's cache to hold: its own prefix index, bounded by the worker's KV capacity."""

from __future__ import annotations

import numpy as np

from kvgym.sim.prefix_index import _WORKER_BITS, _WORKER_MASK, PrefixIndex, _remove
from kvgym.types import FleetSpec

_SLACK = 8
"""A worker's index is trimmed when it is an eighth over its capacity, since trimming sorts all tags of the worker."""


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
            self._trim(worker, int(self.tokens[worker]) - capacity)

    def _trim(self, worker: int, excess: int) -> None:
        """Remove the oldest tags of `worker`: `excess` tokens or a little more."""
        # A parent is at least as recent as its children and ends before them: in this order each tag is a leaf.
        nodes = self._sync()
        slots = np.flatnonzero((self._keys >= 0) & (self._keys & _WORKER_MASK == worker))
        keys, times = self._keys[slots], self._times[slots]
        ids = keys >> _WORKER_BITS
        ends = nodes["end"][ids]
        order = np.lexsort((ids, -ends, times))
        gone = np.cumsum((ends - nodes["start"][ids])[order])
        victims = keys[order][: int(np.searchsorted(gone, excess)) + 1]
        # -1 is below any total: every victim goes.
        _remove(nodes, self._keys, self._times, self._holders, self._totals, self._used, victims, -1)
