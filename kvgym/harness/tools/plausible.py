"""Plays a comparison in many plausible clusters: costs drawn from a calibration or a prior, or one constant moved."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console

from kvgym.config.cluster import resolve_cluster
from kvgym.config.loader import load_config
from kvgym.config.options import to_plain
from kvgym.costs import resolve_cost
from kvgym.costs.linear import Linear
from kvgym.errors import ConfigError
from kvgym.harness.compare.grid import load_compare
from kvgym.harness.compare.summary import CellSummary, Summary
from kvgym.harness.measure.statistics import paired_ratio
from kvgym.harness.report.certainty import LEAST, MOST, Card, Chance, Pair
from kvgym.harness.tools.comparison import compare
from kvgym.seeding import stream

METRICS = ("p50_latency_s", "p95_latency_s", "mean_latency_s")
"""What a pair is said to be better in; less is better."""
PRIOR_SD = 0.2
"""Standard deviation of a coefficient's logarithm where nothing was measured."""
FACTORS = (LEAST, 0.63, 0.8, 1.25, 1.6, MOST)
"""By how much a constant is moved."""
CONSTANTS = ("p0_ms", "p_tok_ms", "p_quad_ms", "d0_ms", "d_seq_ms", "d_kvtok_ms", "step_ms", "capacity_tokens")
"""What is moved, one at a time."""
_DRAW, _MOVED = " draw ", " with "


def read_draws(path: Path) -> list[dict[str, float]]:
    """Return the drawn costs that `kvgym calibrate` has written.

    Raises:
        ConfigError: the file is none of these.
    """
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
        draws = [dict(zip(data["names"], map(float, row), strict=True)) for row in data["draws"]]
        return [dataclasses.asdict(Linear(**draw)) for draw in draws]
    except (OSError, ValueError, KeyError, TypeError, ConfigError) as error:
        raise ConfigError(f"{path} holds no draws of `kvgym calibrate` or `kvgym profile`: {error}") from error


def chances(
    data: Mapping[str, Any], draws: int, file: Path | None, jobs: int | None = None, console: Console | None = None
) -> list[Chance]:
    """Play the comparison in `draws` clusters in place of each of its own.

    Args:
        data: the comparison.
        draws: number of clusters.
        file: draws of a calibration; none: a prior around each fleet's own cost.
        jobs: as for `compare`.
        console: likewise.

    Raises:
        KVGymError: the comparison is wrong, or a run fails.
    """
    if draws < 1:
        raise ConfigError(f"--posterior must be at least 1, got {draws}")
    rng = stream(0, "plausible costs")
    known = read_draws(file) if file else None

    def drawn(cluster: dict[str, Any]) -> dict[str, dict[str, Any]]:
        costs = [known[i] for i in rng.choice(len(known), draws, replace=len(known) < draws)] if known else [
            _prior(cluster["cost"], rng) for _ in range(draws)]  # fmt: skip
        return {f"{_DRAW}{at}": {**cluster, "cost": cost} for at, cost in enumerate(costs)}

    summary = compare(_varied(data, drawn), None, jobs, console).summary
    return _chances(summary)


def cards(data: Mapping[str, Any], jobs: int | None = None, console: Console | None = None) -> list[Card]:
    """Move each constant of each fleet by each of `FACTORS`, and see which pair wins then.

    Raises:
        KVGymError: the comparison is wrong, or a run fails.
    """

    def moved(cluster: dict[str, Any]) -> dict[str, dict[str, Any]]:
        found = {_MOVED: cluster}
        for constant in CONSTANTS:
            for factor in FACTORS:
                if (changed := _moved(cluster, constant, factor)) is not None:
                    found[f"{_MOVED}{constant} x {factor:g}"] = changed
        return found

    return _cards(compare(_varied(data, moved), None, jobs, console).summary)


def _varied(data: Mapping[str, Any], variants: Callable[[dict[str, Any]], dict[str, dict[str, Any]]]) -> dict[str, Any]:
    """Return the comparison with each fleet replaced by its variants (suffix of its label -> configuration)."""
    config = load_compare(data)
    workloads = []
    for workload, clusters in config.grid:
        fleets = []
        for entry in clusters:
            fleet = resolve_cluster(entry.use)
            cost = resolve_cost(fleet.cost)
            if not isinstance(cost, Linear):
                raise ConfigError(f"{entry.label}: only linear step costs can be varied, this fleet's are {cost}")
            plain = load_config("clusters", entry.use) if not isinstance(entry.use, Mapping) else dict(entry.use)
            plain["cost"] = dataclasses.asdict(cost)
            fleets += [
                {"use": to_plain(use), "name": f"{entry.label}{suffix}"} for suffix, use in variants(plain).items()
            ]
        entry_of = {"use": workload.use, "name": workload.label, "optional": workload.optional}
        workloads.append({**entry_of, "clusters": fleets})
    varied = {**data, "workloads": workloads}
    if "cells" in data:  # what was published holds for one fleet
        varied["cells"] = [
            {name: value for name, value in pair.items() if name != "published"} for pair in data["cells"]
        ]
    return varied


def _prior(cost: Mapping[str, float], rng: np.random.Generator) -> dict[str, float]:
    return {name: value * float(np.exp(PRIOR_SD * rng.standard_normal())) for name, value in cost.items()}


def _moved(cluster: Mapping[str, Any], constant: str, factor: float) -> dict[str, Any] | None:
    if constant == "capacity_tokens":
        given = cluster.get(constant, 196_000)
        sizes = [round(factor * size) for size in (given if isinstance(given, list | tuple) else [given])]
        return {**cluster, constant: sizes if isinstance(given, list | tuple) else sizes[0]}
    value = cluster["cost"][constant]
    return {**cluster, "cost": {**cluster["cost"], constant: factor * value}} if value else None


def _chances(summary: Summary) -> list[Chance]:
    base = {cell.labels[:2]: cell for cell in summary.cells if cell.labels[2:] == summary.baseline}
    ratios: dict[tuple[str, str, Pair, str], list[float]] = {}
    for cell in summary.cells:
        if cell.labels[2:] != summary.baseline and cell.labels[:2] in base:
            for metric in METRICS:
                ratio = _ratio(cell, base[cell.labels[:2]], metric)
                if ratio is not None:
                    fleet = cell.labels[1].rpartition(_DRAW)[0]
                    ratios.setdefault((cell.labels[0], fleet, cell.labels[2:], metric), []).append(ratio)
    found = []
    for key, values in ratios.items():
        low, median, high = np.percentile(values, (5, 50, 95))
        found.append(Chance(*key, float(np.mean(np.array(values) < 1.0)), float(median), float(low), float(high)))
    return found


def _ratio(cell: CellSummary, base: CellSummary, metric: str) -> float | None:
    return paired_ratio([row[metric] for row in cell.per_seed], [row[metric] for row in base.per_seed])[0]


def _cards(summary: Summary) -> list[Card]:
    winners: dict[tuple[str, str, str], dict[str, Pair]] = {}
    for (workload, fleet), cells in _by_place(summary.cells).items():
        label, _, change = fleet.partition(_MOVED)
        for metric in METRICS:
            known = [cell for cell in cells if cell.mean(metric) is not None]
            best = min(known, key=lambda cell: cell.mean(metric) or 0.0, default=None)
            if best is not None:
                winners.setdefault((workload, label, metric), {})[change] = best.labels[2:]
    found = []
    for (workload, label, metric), by_change in winners.items():
        for constant in CONSTANTS:
            tried = {factor: by_change.get(f"{constant} x {factor:g}") for factor in FACTORS}
            if any(tried.values()):
                flips = {factor: pair for factor, pair in tried.items() if pair and pair != by_change[""]}
                found.append(Card(workload, label, metric, constant, by_change[""], flips))
    return found


def _by_place(cells: Sequence[CellSummary]) -> dict[tuple[str, str], list[CellSummary]]:
    places: dict[tuple[str, str], list[CellSummary]] = {}
    for cell in cells:
        places.setdefault(cell.labels[:2], []).append(cell)
    return places
