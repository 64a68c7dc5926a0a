"""Routers view the caches by an index each of what they sent, or one that KV events fill; the view says who decides."""

from __future__ import annotations

import copy
from collections.abc import Sequence

import numpy as np

from kvgym.config.signals import SignalsConfig
from kvgym.forest.forest import Forest
from kvgym.knowledge.event_index import EventIndex
from kvgym.knowledge.prefix_index import PrefixIndex
from kvgym.seeding import stream
from kvgym.workloads.base import Workload


class CacheKnowledge:
    """The routers' view of which prefix lies where, for the observabilities ``router`` and ``events``.

    All routers hear the same events at the same time; what they have sent, each knows for itself.

    Args:
        signals: what routers can see.
        forest: prefix forest of the episode; shared, never written.
        capacities: KV tokens per worker, the bound of an index unless `signals` gives one.
        seed: of the episode; its stream "events" loses events.
    """

    def __init__(self, signals: SignalsConfig, forest: Forest, capacities: Sequence[int], seed: int) -> None:
        given = signals.index_tokens
        bounds = [given] * len(capacities) if given is not None else list(capacities)
        self._forest = forest
        self._sent = [PrefixIndex(forest, len(bounds), max_tokens=bounds) for _ in range(signals.routers)]
        self._events: EventIndex | None = None
        if signals.observability == "events":
            self._sent = []
            rng = stream(seed, "events")
            self._events = EventIndex(forest, bounds, signals.event_delay_s, signals.event_loss, rng)
        self._incarnation = np.zeros(len(bounds), np.int64)

    def hear(self, events: np.ndarray, now_s: float) -> None:
        """Take the KV events up to now, in order, and apply those that have arrived."""
        if self._events is not None:
            self._events.publish(events)
            self._events.advance(now_s)

    def see(self, incarnation: np.ndarray) -> None:
        """Empty what is known of workers that have started anew: failures of each so far, int64 (workers,)."""
        for worker in np.flatnonzero(incarnation > self._incarnation).tolist():
            for index in self._sent:
                index.remove_worker(worker)
            if self._events is not None:
                self._events.restart(worker, int(incarnation[worker]))
            self._incarnation[worker] = incarnation[worker]

    def match_tokens(self, router: int, node: int) -> np.ndarray:
        """Return how many tokens of `node` each worker holds as far as `router` knows, int64 (workers,)."""
        return (self._sent[router] if self._events is None else self._events).match_tokens(node)

    def sent(self, router: int, worker: int, node: int, time_s: float) -> None:
        """Note that `router` has sent a prompt to `worker`."""
        if self._events is None:
            self._sent[router].insert(worker, node, time_s)

    @property
    def only(self) -> PrefixIndex:
        """The index of the only router, where there are no events."""
        (index,) = self._sent
        return index

    def fork(self) -> CacheKnowledge:
        """Return an independent copy over the same forest."""
        return copy.deepcopy(self, {id(self._forest): self._forest})


def routers_of(workload: Workload, signals: SignalsConfig) -> np.ndarray:
    """Return which router gets each request, int32 (requests,): by a hash, so that no pattern of ids shows."""
    ids = workload.requests["session"] if signals.router_by == "session" else np.arange(len(workload.requests))
    mixed = ids.astype(np.uint64) * np.uint64(0x9E3779B1) & np.uint64(0xFFFFFFFF)
    mixed ^= mixed >> np.uint64(15)
    mixed = mixed * np.uint64(0x85EBCA77) & np.uint64(0xFFFFFFFF)
    return ((mixed * np.uint64(signals.routers)) >> np.uint64(32)).astype(np.int32)
