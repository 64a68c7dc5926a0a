"""A router and an evictor act as one controller, for kvgym/Joint-v0."""

from __future__ import annotations

from typing import Any

import numpy as np

from kvgym.control import Controller
from kvgym.types import Decision, EvictionDecision, FleetSpec


class JointController:
    """Asks `router` for workers and `evictor` for victims; both hear of every ended request.

    Args:
        router: decides on requests.
        evictor: decides on evictions, as `controllers.victims.VictimController`.
    """

    def __init__(self, router: Controller, evictor: Any) -> None:
        self.router = router
        self.evictor = evictor

    def reset(self, spec: FleetSpec, seed: int) -> None:
        """Start an episode."""
        self.router.reset(spec, seed)
        self.evictor.reset(spec, seed)

    def act(self, decision: Decision | EvictionDecision) -> int:
        """Return a worker or the number of a leaf."""
        return self.router.act(decision) if isinstance(decision, Decision) else int(self.evictor.act(decision))

    def observe(self, records: np.ndarray) -> None:
        """Take note of ended requests."""
        self.router.observe(records)
        self.evictor.observe(records)
