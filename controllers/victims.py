"""Eviction rules play as controllers: they choose among the leaves on offer what a compiled policy would.

They say a rule once more, in a line of numpy, so that the compiled policies can be checked against them and new rules
tried before they are compiled. With as many places as leaves a rule plays exactly as its namesake; a rule that needs
only the least recently accessed leaf (lru) always does. `rlt` also needs ``tail_tokens`` of one page.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from kvgym.errors import UnknownNameError, did_you_mean
from kvgym.seeding import stream
from kvgym.types import EvictionDecision, FleetSpec

PROTECTED_HITS = 2
"""Hits from which `slru` protects a leaf."""

RULES: dict[str, Callable[[np.ndarray], tuple[np.ndarray, ...]]] = {
    "lru": lambda leaves: (-leaves["idle"],),
    "mru": lambda leaves: (leaves["idle"],),
    "fifo": lambda leaves: (-leaves["age"],),
    "filo": lambda leaves: (leaves["age"],),
    "lfu": lambda leaves: (leaves["hits"], -leaves["idle"]),
    "slru": lambda leaves: (leaves["hits"] >= PROTECTED_HITS, -leaves["idle"]),
    "priority": lambda leaves: (leaves["priority"], -leaves["idle"]),
    "random_leaf": lambda leaves: (),
    "rlt": lambda leaves: (leaves["marked"],),
}
"""Rule -> from CANDIDATE rows to the keys by which they are ranked, the most important first; the smallest goes."""


class VictimController:
    """Evicts the leaf that a rule ranks first, a random one where several are first.

    Args:
        rule: one of `RULES`.

    Raises:
        UnknownNameError: there is no such rule.
    """

    def __init__(self, rule: str = "lru") -> None:
        if rule not in RULES:
            hint = did_you_mean(rule, RULES) or ";"
            raise UnknownNameError(f"unknown victim rule {rule!r}{hint} known: {', '.join(RULES)}")
        self._keys = RULES[rule]

    def reset(self, spec: FleetSpec, seed: int) -> None:
        """Start an episode."""
        self._rng = stream(seed, "victims")

    def act(self, decision: EvictionDecision) -> int:
        """Return the number of the leaf that goes."""
        first = np.arange(len(decision.candidates))
        for key in self._keys(decision.candidates):
            values = key[first]
            first = first[values == values.min()]
        return int(first[self._rng.integers(len(first))] if len(first) > 1 else first[0])

    def observe(self, records: np.ndarray) -> None:
        """Ignore completions."""
