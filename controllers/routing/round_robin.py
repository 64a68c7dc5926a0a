"""Round-robin routing takes the workers in turn."""

from __future__ import annotations

from kvgym.control import RoutingController, allowed_workers
from kvgym.types import Decision, FleetSpec


class RoundRobin(RoutingController):
    """Workers 0, 1, ... in turn; a masked worker loses its turn to the next allowed one.

    Source: SGLang's router, policy `round_robin` (all releases). No constants. Trap: where the number of prompt groups
    is a multiple of the number of workers and groups come in a fixed order, this gives perfect cache affinity.
    """

    def reset(self, spec: FleetSpec, seed: int) -> None:
        """Start with worker 0."""
        super().reset(spec, seed)
        self._next = 0

    def act(self, decision: Decision) -> int:
        """Return the first allowed worker at or after the one whose turn it is."""
        workers = allowed_workers(decision.mask)
        later = workers[workers >= self._next]
        worker = int(later[0] if len(later) else workers[0])
        self._next = (worker + 1) % len(decision.mask)
        return worker
