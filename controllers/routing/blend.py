"""Blend adds work left, a quarter of the work in flight and eight times the miss, in seconds; the smallest wins."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from controllers.accounts.work_model import WorkModel
from kvgym.config.options import option
from kvgym.control import RoutingController, least
from kvgym.types import Decision, FleetSpec

KEEP, MISS_PRICE = 0.25, 8.0
"""Weights of the work in flight and of the miss; the work left has weight 1."""


@dataclass(eq=False)
class Blend(RoutingController):
    """Smallest W + `keep` * U + `miss_price` * miss (s); ties are drawn at random, masked workers are left out.

    W, U and miss are the `WorkModel`'s: virtual work with linear drain, costs in flight without drain, and the prefill
    of what the worker's cache lacks of this prompt, all in seconds as measured for that worker. The large price on a
    miss keeps each prefix on few workers: a second of prefill is paid by everybody who waits behind it. `keep` holds
    on to what has not been answered, for the case that the drain is too optimistic.

    Measured in the simulator by `kvgym compare blend` (GSP, 10 seeds, RLT; P50 / P95 / mean, paired, over those of the
    other):

    - default, 12/s: 0.71 / 0.62 / 0.66 of lbgr_release, but 0.94 / 1.45 / 1.19 of lbgr;
    - workers of speeds 0.5, 1, 1, 1.5: 0.55 / 0.36 / 0.40 of lbgr_release, 0.97 / 1.65 / 1.34 of lbgr;
    - 14/s: 0.35 / 0.74 / 0.48 and 0.91 / 1.23 / 1.04; 8/s: 1.00 / 1.27 / 1.15 and 1.09 / 1.48 / 1.29.

    So it has the most hits and the lowest P50 under load; lbgr, whose price on a miss grows with the queue, has the
    better tail everywhere and is better at light load, where a fixed price is too high. It is here as the simplest
    rule that is good and as what learned routers start from.

    Source: our own rule, found among linear scores on the default GSP; it is in no published system that we know.

    Args:
        keep: weight of the work in flight.
        miss_price: weight of the miss.

    Raises:
        ConfigError: a weight is negative or no number.
    """

    keep: float = option(KEEP, "weight of the work in flight", low=0)
    miss_price: float = option(MISS_PRICE, "weight of the miss", low=0)

    def reset(self, spec: FleetSpec, seed: int) -> None:
        """Start with an empty index, no work and the starting speeds; only ties are random."""
        super().reset(spec, seed)
        self.model = WorkModel(spec)

    def act(self, decision: Decision) -> int:
        """Return the worker of smallest score and charge the request to it."""
        look, load = self.model.look(decision), self.model.load
        score = load.work_s + self.keep * load.held_s + self.miss_price * look.miss_s
        best = least(score, decision.mask)
        worker = int(best[0] if len(best) == 1 else best[self.rng.integers(len(best))])
        self.model.send(decision, worker, look)
        return worker

    def observe(self, records: np.ndarray) -> None:
        """Take ended requests off their workers and learn their speeds."""
        self.model.observe(records)
