"""Power of two choices draws two different workers and takes the one with the lower load."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from kvgym.config.options import option
from kvgym.control import RoutingController, allowed_workers
from kvgym.types import Decision


@dataclass(eq=False)
class PowerOfTwo(RoutingController):
    """Policy `power_of_two` of sglang-router 0.3.2: draws two allowed workers and compares only them.

    The release compares the numbers of tokens that its load monitor reports, and requests in flight where either report
    is missing. Here `load` says which of the two is known: ``requests`` (the fallback, and the default, since no
    monitor is needed), or ``tokens``: prompt tokens in flight by the router's own count, which stand for the report but
    are never stale.

    Ties: the worker drawn first. One allowed worker: that one. Masked workers are never drawn.

    Source: sglang-router 0.3.2 (sgl-model-gateway, policies/power_of_two.rs). No constants.

    Args:
        load: what is compared, ``requests`` or ``tokens``.

    Raises:
        ConfigError: `load` is neither.
    """

    load: Literal["requests", "tokens"] = option("requests", "what is compared: requests or prompt tokens in flight")

    def act(self, decision: Decision) -> int:
        """Return the less loaded of two workers drawn at random."""
        workers = allowed_workers(decision.mask)
        count = len(workers)
        if count == 1:
            return int(workers[0])
        first = int(self.rng.integers(count))
        second = (first + 1 + int(self.rng.integers(count - 1))) % count
        load = decision.inflight if self.load == "requests" else decision.inflight_tokens
        return int(workers[first] if load[workers[first]] <= load[workers[second]] else workers[second])
