"""Lets other controllers decide on the same traffic without acting, each with a memory of what it would have sent."""

from __future__ import annotations

import dataclasses

import numpy as np

from kvgym.config.signals import DEFAULT_SIGNALS
from kvgym.control import Controller
from kvgym.knowledge.view import CacheKnowledge
from kvgym.types import Decision, FleetSpec


class Shadow:
    """One controller that only watches; loads and queues that it sees are those of the acting one's choices.

    Attributes:
        name: as it was asked for.
        decisions: it was asked so often.
        agreements: so often it chose as the acting controller did.
        believed_tokens: cached at its choices, by its own index.
    """

    def __init__(self, name: str, controller: Controller) -> None:
        self.name, self._controller = name, controller
        self.decisions = self.agreements = self.believed_tokens = 0

    def reset(self, spec: FleetSpec, seed: int) -> None:
        """Begin with an empty memory over the forest of `spec`; the counts stay."""
        self._most = spec.page_size
        self._known = CacheKnowledge(DEFAULT_SIGNALS, spec.forest, spec.capacity_tokens, seed)
        self._controller.reset(spec, seed)

    def consider(self, decision: Decision, chosen: int) -> int:
        """Return its choice for a decision in which `chosen` was taken."""
        assert decision.incarnation is not None, "the seat always says"
        self._known.see(decision.incarnation)
        most = (decision.prompt_tokens - 1) // self._most * self._most
        hits = np.minimum(self._known.match_tokens(0, decision.node), most)
        worker = int(self._controller.act(dataclasses.replace(decision, hit_tokens=hits)))
        self._known.sent(0, worker, decision.node, decision.time_s)
        self.decisions += 1
        self.agreements += worker == chosen
        self.believed_tokens += int(hits[worker])
        return worker

    def observe(self, records: np.ndarray) -> None:
        """Show it what has ended."""
        self._controller.observe(records)
