"""The paper's baseline, sgl-router 0.1.4: longest match if it is long enough, else the smallest tree."""

from __future__ import annotations

import numpy as np

from controllers.base import RoutingController, least
from controllers.routing.text_tree import TextTree
from kvgym.seeding import stream_seed
from kvgym.types import Decision, FleetSpec

_WORD = 2**64 - 1


class CacheAware014(RoutingController):
    """Policy `cache_aware` of sgl-router 0.1.4 (sglang 0.4.6) with the constants of the LBGR paper's release.

    1. Imbalanced, i.e. max - min > `balance_abs` and max > `balance_rel` * min over all workers' requests in flight
       (masked ones too): the worker with the fewest.
    2. Else, if the tree knows more than `cache_threshold` (strictly) of the prompt's characters: a worker tagged on the
       deepest matched node, the first in that node's hash-map order, whatever its load.
    3. Else: the worker with the fewest characters in its tree: history, not load.

    The prompt is then inserted for that worker. The look-up of rule 2 refreshes the matched path of the worker that it
    found even if rule 3 decides in the end.

    Ties: the source takes the first in the order of a hash map, whose hash keys are random per map but fixed for the
    map's life. So here every node has a random order of the workers, and so have the two tables of queue lengths and
    tree sizes, all from the episode's controller stream. Requests that match the same node at the same time therefore
    all go to the same worker; ties of size or queue always go to the same one too, but an insert breaks a tie of sizes.

    Masks: masked workers are left out everywhere; if all holders of the deepest matched node are, rule 3 decides.

    Source: sgl-router 0.1.4 (src/router.rs, src/tree.rs) as in the paper's release (github fzwark/KVRouting, fc3b2a1).

    Args:
        cache_threshold: matched fraction that must be exceeded.
        balance_abs: difference of requests in flight that must be exceeded.
        balance_rel: ratio of requests in flight that must be exceeded.
        max_tree_chars: size to which each worker's tree is trimmed, characters.
        evict_every_s: period of the trimming, seconds.
    """

    def __init__(
        self,
        cache_threshold: float = 0.5,
        balance_abs: int = 32,
        balance_rel: float = 1.0001,
        max_tree_chars: int = 2**24,
        evict_every_s: float = 60.0,
    ) -> None:
        self.cache_threshold = cache_threshold
        self.balance_abs = balance_abs
        self.balance_rel = balance_rel
        self.max_tree_chars = max_tree_chars
        self.evict_every_s = evict_every_s

    def reset(self, spec: FleetSpec, seed: int) -> None:
        """Start with empty trees and draw the orders that settle ties."""
        super().reset(spec, seed)
        self.tree = TextTree(spec, self.max_tree_chars, self.evict_every_s)
        self._queue_rank = self.rng.permutation(spec.workers)
        self._size_rank = self.rng.permutation(spec.workers)
        self._salt = stream_seed(seed, "controller")

    def act(self, decision: Decision) -> int:
        """Return the worker by the three rules, and remember the prompt there."""
        self.tree.advance(decision.time_s)
        low, high = decision.inflight.min(), decision.inflight.max()
        if high - low > self.balance_abs and high > self.balance_rel * low:
            worker = _first(least(decision.inflight, decision.mask), self._queue_rank)
        else:
            worker = self._by_text(decision)
        self.tree.insert(worker, decision.node, decision.time_s)
        return worker

    def _by_text(self, decision: Decision) -> int:
        """Rules 2 and 3."""
        node = self.tree.matched(decision.node)
        holders = np.flatnonzero(self.tree.tagged(node) & decision.mask)
        if len(holders):
            found = self._first_in_map(node, holders)
            self.tree.insert(found, node, decision.time_s)
            if self.tree.matched_fraction(node, decision.prompt_chars) > self.cache_threshold:
                return found
        return _first(least(self.tree.chars, decision.mask), self._size_rank)

    def _first_in_map(self, node: int, holders: np.ndarray) -> int:
        """Return the holder that comes first in the hash-map order of `node`."""
        if len(holders) == 1:
            return int(holders[0])
        # A fixed random rank per (seed, node, worker) without storing it: two rounds of multiply and shift.
        rank = holders.astype(np.uint64) + np.uint64((node * 0x9E3779B97F4A7C15 + self._salt) & _WORD)
        for multiplier in (0xBF58476D1CE4E5B9, 0x94D049BB133111EB):
            rank = (rank ^ (rank >> np.uint64(29))) * np.uint64(multiplier)
        return int(holders[np.argmin(rank ^ (rank >> np.uint64(32)))])


def _first(workers: np.ndarray, rank: np.ndarray) -> int:
    """Return the worker of lowest rank."""
    return int(workers[0] if len(workers) == 1 else workers[np.argmin(rank[workers])])
