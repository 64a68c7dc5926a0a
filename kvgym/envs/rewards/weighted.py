"""A reward is made of named terms, their weights and their options."""

from __future__ import annotations

import dataclasses
import inspect
import math
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, cast

import numpy as np

from kvgym.backends.base import Progress
from kvgym.config.loader import load_yaml
from kvgym.config.names import table
from kvgym.config.options import build
from kvgym.envs.rewards.base import Term, reads_integrals_only
from kvgym.errors import ConfigError, SimulationError, did_you_mean
from kvgym.types import RECORD

_NOTHING = np.zeros(0, RECORD)


class WeightedReward:
    """The weighted sum of reward terms.

    Args:
        given: name of one term (weight 1); a map term -> weight, or term -> map of ``weight`` (default 1) and the
            term's options, as in ``{latency: 0.1, slo: {weight: 1.0, ttft_s: 2.0}}``; the path of a YAML file with
            such a map; or a term itself, a callable, which goes by its ``__name__``.

    Raises:
        ConfigError: there is no term, a weight is no finite number, or a term does not take its options.
        UnknownNameError: no such term.
    """

    def __init__(self, given: str | Path | Mapping[str, Any] | Term) -> None:
        self.weights: dict[str, float] = {}
        self._terms: dict[str, Term] = {}
        if not isinstance(given, str | Path | Mapping):
            self._add_own(given)
            return
        entries: Mapping[str, Any] = given if isinstance(given, Mapping) else {str(given): 1.0}
        if not isinstance(given, Mapping) and str(given).endswith((".yaml", ".yml")):
            entries = load_yaml(given)
        if not entries:
            raise ConfigError("reward has no terms; give at least one, as in {latency: 1.0}")
        for name, entry in entries.items():
            options = {**entry} if isinstance(entry, Mapping) else {"weight": entry}
            self.weights[name] = _weight(name, options.pop("weight", 1.0))
            self._terms[name] = _term(name, options)

    def __call__(self, before: Progress, after: Progress, records: np.ndarray) -> tuple[float, dict[str, float]]:
        """Return the reward of one step and its unweighted terms.

        Raises:
            SimulationError: a term gave no finite number.
        """
        terms = {name: float(term(before, after, records)) for name, term in self._terms.items()}
        total = sum(weight * terms[name] for name, weight in self.weights.items())
        if not math.isfinite(total):
            raise SimulationError(f"reward terms must be finite numbers, got {terms}")
        return total, terms

    def of_many(
        self, before: Progress, after: Progress, ended: Callable[[int], np.ndarray]
    ) -> tuple[np.ndarray, dict[str, np.ndarray]]:
        """Return the rewards of one step of many episodes and their unweighted terms, float64 (episodes,).

        Args:
            before: as for one episode, but each field an array (episodes,).
            after: likewise.
            ended: returns the RECORD rows of an episode; asked once for each only if a term needs them.

        Raises:
            SimulationError: a term gave no finite number, or one for all episodes together.
        """
        if all(map(reads_integrals_only, self._terms.values())):
            terms = {name: np.asarray(term(before, after, _NOTHING)) for name, term in self._terms.items()}
            shaped = all(values.shape == np.shape(after.time_s) for values in terms.values())
            total = sum(weight * terms[name] for name, weight in self.weights.items()) if shaped else math.nan
            if not np.isfinite(total).all():
                raise SimulationError(f"reward terms of integrals must be a finite number per episode, got {terms}")
            return cast(np.ndarray, total), terms
        steps = enumerate(zip(np.column_stack(before), np.column_stack(after), strict=True))
        found = [self(Progress(*b), Progress(*a), ended(i)) for i, (b, a) in steps]
        terms = {name: np.array([each[name] for _, each in found]) for name in self.weights}
        return np.array([total for total, _ in found]), terms

    def _add_own(self, given: Any) -> None:
        if not callable(given):
            raise ConfigError(f"reward must be a name, a map, a path or a callable, got {given!r}")
        name = getattr(given, "__name__", type(given).__name__)
        self.weights, self._terms = {name: 1.0}, {name: given}


def _weight(name: str, weight: Any) -> float:
    if isinstance(weight, bool) or not isinstance(weight, int | float) or not abs(weight) <= sys.float_info.max:
        raise ConfigError(f"reward: the weight of {name!r} must be a finite number, got {weight!r}")
    return float(weight)


def _term(name: Any, options: dict[str, Any]) -> Term:
    """Return the term called `name`: a function, or an object of a class made with its options."""
    if not isinstance(name, str):
        raise ConfigError(f"reward: a term's name must be text, got {name!r}")
    found: Any = table("rewards").load(name)
    if inspect.isclass(found):
        return _made(found, name, options)
    if options:
        raise ConfigError(f"reward: {name!r} has no option {next(iter(options))!r}; it takes a weight only")
    return found


def _made(cls: Any, name: str, options: dict[str, Any]) -> Any:
    """Return an object of a term's class."""
    if not dataclasses.is_dataclass(cls):
        try:
            return cls(**options)
        except TypeError as error:
            raise ConfigError(f"reward: {name!r} does not take {options}: {error}") from error
    known = ["weight", *(spec.name for spec in dataclasses.fields(cls))]
    for key in options:
        if key not in known:
            hint = did_you_mean(key, known)
            raise ConfigError(f"unknown key {key!r} in reward.{name}{hint}; allowed: {', '.join(known)}")
    return build(cast(type, cls), options, f"reward.{name}")
