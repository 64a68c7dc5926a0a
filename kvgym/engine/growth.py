"""The cache's arrays grow when the engine asks for it (it returns GROW between events, never inside one)."""

from __future__ import annotations

import numpy as np

from kvgym.engine.state import Cache, link_free, table_size
from kvgym.jit.door import record_zeros


def grow(cache: Cache) -> Cache:
    """Return the cache with longer arrays: slots, table, leaf rows and log, each doubled where it is nearly full."""
    from kvgym.engine.entry.entry import most_slots, rehash

    free, workers = int(cache.clock["free_slots"][0]), cache.workers
    most = 8 + max(most_slots(cache, w) for w in range(len(workers)))
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
        scratch = np.zeros(2 * leaves, np.int32)
    grown = cache._replace(slots=slots, table=table, order=order, scratch=scratch, log=_longer_log(cache))
    if new > old:
        rehash(grown, cache.table)
        link_free(grown, old, new)
    return grown


def _longer_log(cache: Cache) -> np.ndarray:
    """Return the log, doubled as long as the next event could fill it."""
    from kvgym.engine.entry.entry import most_logged

    log, logged = cache.log, int(cache.clock["logged"][0])
    if cache.options["log"][0] == 0:
        return log
    size, most = len(log), max(most_logged(cache, w) for w in range(len(cache.workers)))
    while size < logged + most:
        size *= 2
    longer = record_zeros(size, log.dtype)
    longer[:logged] = log[:logged]
    return longer
