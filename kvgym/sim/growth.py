"""Growing the cache's arrays when the engine asks for it (it returns GROW between events, never inside one)."""

from __future__ import annotations

import numpy as np

from kvgym.sim.state import Cache, link_free, table_size


def grow(cache: Cache) -> Cache:
    """Return the cache with more slots, a longer table and longer leaf rows: each doubled where it is nearly full."""
    from kvgym.sim.entry import most_slots, rehash

    free, workers = int(cache.clock["free_slots"][0]), cache.workers
    most = 8 + most_slots(cache)
    slots, table, order, scratch = cache.slots, cache.table, cache.order, cache.scratch
    old = len(slots)
    new = old
    while free + new - old < most + new // 8:
        new *= 2
    if new > old:
        slots = np.zeros(new, slots.dtype).view(type(slots))
        slots[:old] = cache.slots
        table = np.full(table_size(new), -1, np.int32)
    leaves = order.shape[1]
    while int(workers["leaves"].max()) + most > leaves:
        leaves *= 2
    if leaves > order.shape[1]:
        order = np.zeros((len(workers), leaves), np.int32)
        order[:, : cache.order.shape[1]] = cache.order
        scratch = np.zeros(leaves, np.int32)
    grown = cache._replace(slots=slots, table=table, order=order, scratch=scratch)
    if new > old:
        rehash(grown, cache.table)
        link_free(grown, old, new)
    return grown
