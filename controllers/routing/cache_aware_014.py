"""The paper's baseline, sgl-router 0.1.4, takes the longest match if it is long enough, else the smallest tree."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from controllers.accounts.text_router import TextRouter
from kvgym.control import least
from kvgym.types import Decision, FleetSpec


@dataclass(eq=False)
class CacheAware014(TextRouter):
    """Policy `cache_aware` of sgl-router 0.1.4 (sglang 0.4.6) with the constants of the LBGR paper's release.

    1. Imbalanced, i.e. max - min > `balance_abs` and max > `balance_rel` * min over all workers' requests in flight
       (masked ones too): the worker with the fewest.
    2. Else, if the tree knows more than `cache_threshold` (strictly) of the prompt's characters: a worker tagged on the
       deepest matched node, whatever its load, drawn at random.
    3. Else: the worker with the fewest characters in its tree: history, not load.

    The prompt is then inserted for that worker. The look-up of rule 2 refreshes the matched path of the worker that it
    found even if rule 3 decides in the end.

    Ties: the source takes the first worker in a node's hash-map order, random per node but fixed for its life. Its tree
    is one of characters, though: below a shared prefix it branches on the first characters of the prompts seen so far,
    so the deepest matched node, its holders and their order differ between prompts that share the same prefix. The
    forest here does not go below tokens that are really shared, so the holder is drawn per decision from the episode's
    controller stream. That is a model of the source, preferred to one fixed order per node after comparing both with
    the published hit rates; it has not been checked against the router itself. The tables of queue lengths and tree
    sizes have one random order for the episode, as in the source, so their ties always go to the same worker.

    Masks: masked workers are left out everywhere; if all holders of the deepest matched node are, rule 3 decides. A
    worker that has restarted leaves the tree.

    Source: sgl-router 0.1.4 (src/router.rs, src/tree.rs) as in the paper's release (github fzwark/KVRouting, fc3b2a1).

    Args: those of `TextRouter`.
    """

    def reset(self, spec: FleetSpec, seed: int) -> None:
        """Start with empty trees and draw the orders that settle ties."""
        super().reset(spec, seed)
        self._queue_rank = self.rng.permutation(spec.workers)
        self._size_rank = self.rng.permutation(spec.workers)

    def act(self, decision: Decision) -> int:
        """Return the worker by the three rules, and remember the prompt there."""
        self.catch_up(decision)
        if self.imbalanced(decision):
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
            found = int(holders[self.rng.integers(len(holders))] if len(holders) > 1 else holders[0])
            self.tree.insert(found, node, decision.time_s)
            if self.tree.matched_fraction(node, decision.prompt_chars) > self.cache_threshold:
                return found
        return _first(least(self.tree.chars, decision.mask), self._size_rank)


def _first(workers: np.ndarray, rank: np.ndarray) -> int:
    """Return the worker of lowest rank."""
    return int(workers[0] if len(workers) == 1 else workers[np.argmin(rank[workers])])
