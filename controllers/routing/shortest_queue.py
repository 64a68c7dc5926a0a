"""Shortest queue: the worker with the fewest requests in flight."""

from __future__ import annotations

from controllers.base import RoutingController, least
from kvgym.types import Decision


class ShortestQueue(RoutingController):
    """Fewest requests sent and not yet answered (the router's own count); masked workers are left out.

    Source: the textbook rule (join the shortest queue), equal to SGLang's router when it finds the load imbalanced. No
    constants. Ties are drawn uniformly from the episode's controller stream, so an idle fleet is not filled from 0.
    """

    def act(self, decision: Decision) -> int:
        """Return one of the least loaded allowed workers."""
        workers = least(decision.inflight, decision.mask)
        return int(workers[self.rng.integers(len(workers))] if len(workers) > 1 else workers[0])
