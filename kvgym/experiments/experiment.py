"""Reads an experiment's file, runs its comparison, and keeps the figures that its claims are judged by."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rich.console import Console

from kvgym.config.loader import load_config, mistakes_in, preset_names
from kvgym.config.options import build, option
from kvgym.errors import ResultsError
from kvgym.experiments.claims import Claim, Finding, Labels, Metrics, judge
from kvgym.harness.compare.grid import load_compare
from kvgym.harness.tools.comparison import compare

_DIGITS = 6


@dataclass(frozen=True)
class Experiment:
    """One published experiment: the comparison that repeats it, what was claimed, and what `quick` changes."""

    title: str
    source: str
    compare: dict[str, Any]
    claims: tuple[Claim, ...]
    quick: dict[str, Any] = field(default_factory=dict)
    notes: str = option("", "what was assumed, and why figures differ")


@dataclass(frozen=True)
class Outcome:
    """What is kept of an experiment's runs: for each cell the metrics of its claims, seed by seed."""

    seeds: int
    quick: bool
    cells: dict[Labels, Metrics]

    @property
    def plain(self) -> dict[str, Any]:
        """The outcome as plain data, numbers to six digits."""
        cells = [
            {"labels": list(labels), "metrics": {name: [_short(value) for value in row] for name, row in found.items()}}
            for labels, found in self.cells.items()
        ]
        return {"seeds": self.seeds, "quick": self.quick, "cells": cells}

    @classmethod
    def of_plain(cls, data: Mapping[str, Any]) -> Outcome:
        """Return the outcome that `plain` has written."""
        cells = {tuple(cell["labels"]): cell["metrics"] for cell in data["cells"]}
        return cls(data["seeds"], data["quick"], cells)


def experiment_names() -> list[str]:
    """Return the names of the experiments in configs/experiments."""
    return preset_names("experiments")


def load_experiment(name: str) -> Experiment:
    """Return the experiment of this name, checked, its comparison too.

    Raises:
        ConfigError, UnknownNameError: there is none, or its file is wrong.
    """
    with mistakes_in(name):
        experiment = build(Experiment, load_config("experiments", name), "experiment")
        load_compare({"name": Path(name).stem, **experiment.compare})
    return experiment


def run_experiment(name: str, jobs: int | None, quick: bool, console: Console) -> Outcome:
    """Run the experiment's comparison into its folder in results/; runs that are there already are not run again.

    Raises:
        KVGymError: the experiment is wrong, a run fails, or the folder can't be used.
    """
    experiment = load_experiment(name)
    data = {"name": Path(name).stem, **experiment.compare, **(experiment.quick if quick else {})}
    found = compare(data, None, jobs, console).summary
    metrics = sorted({claim.metric for claim in experiment.claims})
    cells: dict[Labels, Metrics] = {
        cell.labels: {m: [row[m] for row in cell.per_seed] for m in metrics} for cell in found.cells
    }
    return Outcome(len(load_compare(data).seed_list), quick, cells)


def findings(name: str, outcome: Outcome) -> list[Finding]:
    """Return the experiment's claims, judged by an outcome."""
    return [judge(claim, outcome.cells) for claim in load_experiment(name).claims]


def read_outcomes(path: Path) -> dict[str, Outcome]:
    """Return name -> stored outcome; nothing where the file is not there yet.

    Raises:
        ResultsError: the file is damaged.
    """
    if not path.exists():
        return {}
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
        return {name: Outcome.of_plain(entry) for name, entry in data.items()}
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ResultsError(
            f"{path} is no file of experiments' outcomes ({error!r}); delete it to begin anew"
        ) from error


def write_outcomes(path: Path, outcomes: Mapping[str, Outcome]) -> None:
    """Write the outcomes, one cell a line, in the order of their names."""
    path.parent.mkdir(parents=True, exist_ok=True)
    blocks = []
    for name in sorted(outcomes):
        plain = outcomes[name].plain
        cells = ",\n".join(f"  {json.dumps(cell)}" for cell in plain.pop("cells"))
        blocks.append(f'"{name}": {json.dumps(plain)[:-1]}, "cells": [\n{cells}\n]}}')
    partial = path.with_suffix(".partial")
    partial.write_text("{\n" + ",\n".join(blocks) + "\n}\n", encoding="utf-8")
    partial.replace(path)


def _short(value: float | None) -> float | None:
    return None if value is None else float(f"{value:.{_DIGITS}g}")
