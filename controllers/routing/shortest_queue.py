"""Shortest queue takes the worker with the fewest requests in flight, or waiting by its own report."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from kvgym.config.options import option
from kvgym.control import RoutingController, least
from kvgym.types import Decision


@dataclass(eq=False)
class ShortestQueue(RoutingController):
    """The smallest count of requests wins; masked workers are left out.

    `signal` says what is counted: ``inflight``, what this router has sent and has no answer to (never stale, blind to
    other routers), or ``queued``, what the workers report as waiting (blind to what was sent since the report). Where
    workers report nothing, requests in flight count in both cases.

    Source: the textbook rule (join the shortest queue), equal to SGLang's router when it finds the load imbalanced. No
    constants. Ties are drawn uniformly from the episode's controller stream, so an idle fleet is not filled from 0.

    Args:
        signal: ``inflight`` or ``queued``.

    Raises:
        ConfigError: `signal` is neither.
    """

    signal: Literal["inflight", "queued"] = option(
        "inflight", "what is counted: own requests in flight, or reported queues"
    )

    def act(self, decision: Decision) -> int:
        """Return one of the least loaded allowed workers."""
        reported = decision.queued if self.signal == "queued" else None
        workers = least(decision.inflight if reported is None else reported, decision.mask)
        return int(workers[self.rng.integers(len(workers))] if len(workers) > 1 else workers[0])
