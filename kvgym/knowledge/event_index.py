"""KV events tell routers of the caches: stores and removals, applied after a delay, some of them lost."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from kvgym.knowledge.prefix_index import PrefixIndex
from kvgym.types import KV_EVENT, STORED

if TYPE_CHECKING:
    from kvgym.forest.forest import Forest


class EventIndex:
    """An index that follows what the workers say they store and remove.

    - A store says that the worker holds the path up to there: caches are closed under prefixes, so a store that was
      lost is made good by the next one below it. A prefix counts up to its first hole.
    - A removal takes what is known of its range; tokens that were never heard of are skipped.
    - Events of an older incarnation of a worker than the known one are dropped. A newer one, in an event or by
      `restart`, empties the worker's index first: a cache is lost in a restart without a single removal.
    - What a lost removal leaves behind is forgotten, oldest use first, once a worker exceeds `max_tokens`; without
      losses an index of the KV capacity never does.

    With delay 0 and loss 0 `match_tokens` is what the caches really hold.

    Args:
        forest: prefix forest that the events speak of.
        max_tokens: bound of the index per worker, shape (workers,).
        delay_s: from an event to its effect here, seconds.
        loss: probability that an event is lost.
        rng: stream that loses events.
    """

    def __init__(
        self, forest: Forest, max_tokens: Sequence[int], delay_s: float, loss: float, rng: np.random.Generator
    ) -> None:
        self.index = PrefixIndex(forest, len(max_tokens), max_tokens=max_tokens)
        self.delay_s = delay_s
        self.loss = loss
        self.incarnation = np.zeros(len(max_tokens), np.int64)
        self._rng = rng
        self._late = np.zeros(0, KV_EVENT)

    def publish(self, events: np.ndarray) -> None:
        """Take note of KV_EVENT rows in the order in which they happened; they are not known before `advance`."""
        if self.loss > 0.0 and len(events):
            events = events[self._rng.random(len(events)) >= self.loss]
        if len(events):
            self._late = np.concatenate((self._late, events))

    def advance(self, now_s: float) -> None:
        """Apply what has arrived by `now_s`."""
        due = int(np.searchsorted(self._late["time_s"] + self.delay_s, now_s, side="right"))
        for time_s, worker, incarnation, kind, node, first, last in self._late[:due].tolist():
            if incarnation > self.incarnation[worker]:
                self.restart(worker, incarnation)
            if incarnation < self.incarnation[worker]:
                continue
            if kind == STORED:
                self.index.insert(worker, node, time_s, last)
            else:
                self.index.remove(worker, node, first, last)
        self._late = self._late[due:]

    def restart(self, worker: int, incarnation: int) -> None:
        """Note that `worker` has started anew with an empty cache; what its former life still sends is void."""
        self.index.remove_worker(worker)
        self.incarnation[worker] = incarnation

    def match_tokens(self, node: int) -> np.ndarray:
        """Return the tokens of the path to `node` that each worker holds, as far as is known, int64 (workers,)."""
        return self.index.match_unbroken(node)
