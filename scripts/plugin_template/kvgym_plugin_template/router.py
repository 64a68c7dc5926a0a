"""Longest hit takes the worker that holds most of the prompt, among equals the one with the fewest in flight."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from kvgym.config.options import option
from kvgym.control import RoutingController, allowed_workers
from kvgym.types import Decision, FleetSpec


@dataclass(eq=False)
class LongestHit(RoutingController):
    """Goes by the cache as long as no worker has too many more requests in flight than another."""

    surplus: int = option(16, "requests in flight beyond the least loaded worker's that exclude a worker", low=0)

    def reset(self, spec: FleetSpec, seed: int) -> None:
        """Start an episode; `self.spec` and the random stream `self.rng` are set here."""
        super().reset(spec, seed)

    def act(self, decision: Decision) -> int:
        """Return a worker that `decision.mask` allows."""
        workers = allowed_workers(decision.mask)
        load = decision.inflight[workers]
        near = load <= load.min() + self.surplus
        workers, load = workers[near], load[near]
        hit = np.zeros(len(workers)) if decision.hit_tokens is None else decision.hit_tokens[workers]
        return int(workers[np.lexsort((workers, load, -hit))[0]])

    def observe(self, records: np.ndarray) -> None:
        """Take note of requests that have ended (RECORD rows); nothing to learn here."""
