"""Several routers act side by side: one controller each sees its own decisions and what became of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from kvgym.seeding import stream_seed
from kvgym.types import Decision, FleetSpec


class Routers:
    """A controller made of one controller per router; `Decision.router` says whose turn it is.

    A completion is shown only to the router that sent the request. Router 0 has the episode's seed, the others seeds
    made from it, so that their draws differ.

    Args:
        controllers: one per router.

    Attributes:
        predicted_s: what the router that chose last expects (see `kvgym.control`), seconds; -1: it does not say.
    """

    predicted_s: float = -1.0

    def __init__(self, controllers: list[Any]) -> None:
        self.controllers = controllers

    def reset(self, spec: FleetSpec, seed: int) -> None:
        """Start an episode in every router."""
        self._router_of: dict[int, int] = {}
        for router, controller in enumerate(self.controllers):
            controller.reset(spec, stream_seed(seed, f"router {router}") if router else seed)

    def act(self, decision: Decision) -> int:
        """Return the choice of the router that got the request."""
        self._router_of[decision.request] = decision.router
        controller = self.controllers[decision.router]
        worker = controller.act(decision)
        self.predicted_s = getattr(controller, "predicted_s", -1.0)
        return worker

    def observe(self, records: np.ndarray) -> None:
        """Show each router its own completions."""
        owners = np.array([self._router_of.pop(request, -1) for request in records["request"].tolist()])
        for router, controller in enumerate(self.controllers):
            if (own := owners == router).any():
                controller.observe(records[own])


def make_routers(make: Callable[[], Any], routers: int) -> Any:
    """Return one controller by `make`, or for several routers a `Routers` of as many."""
    return make() if routers == 1 else Routers([make() for _ in range(routers)])
