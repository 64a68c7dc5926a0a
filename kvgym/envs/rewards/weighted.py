"""A reward made of named terms and weights."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from kvgym.backends.base import Progress
from kvgym.config import load_yaml
from kvgym.errors import ConfigError
from kvgym.tables import table


class WeightedReward:
    """The weighted sum of reward terms.

    Args:
        given: name of one term (weight 1), a map term -> weight, or the path of a YAML file with such a map.

    Raises:
        ConfigError: there is no term, or a weight is no finite number.
        UnknownNameError: no such term.
    """

    def __init__(self, given: str | Path | Mapping[str, float]) -> None:
        if isinstance(given, Mapping):
            weights = dict(given)
        elif str(given).endswith((".yaml", ".yml")):
            weights = load_yaml(given)
        else:
            weights = {str(given): 1.0}
        if not weights:
            raise ConfigError("reward has no terms; give at least one, as in {latency: 1.0}")
        for name, weight in weights.items():
            if isinstance(weight, bool) or not isinstance(weight, int | float) or not math.isfinite(weight):
                raise ConfigError(f"reward: the weight of {name!r} must be a finite number, got {weight!r}")
        self.weights = {name: float(weight) for name, weight in weights.items()}
        self._terms = {name: table("rewards").load(name) for name in self.weights}

    def __call__(self, before: Progress, after: Progress, records: np.ndarray) -> tuple[float, dict[str, float]]:
        """Return the reward of one step and its unweighted terms."""
        terms = {name: float(term(before, after, records)) for name, term in self._terms.items()}
        return sum(weight * terms[name] for name, weight in self.weights.items()), terms
