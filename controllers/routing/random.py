"""Random routing takes any worker that may be chosen, with equal chances."""

from __future__ import annotations

from kvgym.control import RoutingController, allowed_workers
from kvgym.types import Decision


class Random(RoutingController):
    """Uniform choice among the allowed workers, from the episode's controller stream.

    Source: SGLang's router, policy `random` (all releases). No constants.
    """

    def act(self, decision: Decision) -> int:
        """Return a worker drawn uniformly from the allowed ones."""
        workers = allowed_workers(decision.mask)
        return int(workers[self.rng.integers(len(workers))])
