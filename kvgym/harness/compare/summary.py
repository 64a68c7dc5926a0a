"""Brings the runs of a grid together: per cell the metrics of each seed, their spread and ratios to the baseline."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from kvgym.config.slo import SLO
from kvgym.errors import ResultsError
from kvgym.harness.compare.cell import SIMULATED, StoredCell
from kvgym.harness.measure.classes import CLASS_METRICS, Class, ClassMetrics, class_metrics
from kvgym.harness.measure.flags import Signs, flags, signs
from kvgym.harness.measure.statistics import (
    METRICS,
    RATIO_METRICS,
    measured,
    paired_difference,
    paired_ratio,
    spread,
    summarize,
)
from kvgym.harness.measure.waterfall import mean_shares

Triple = tuple[float | None, float | None, float | None]


@dataclass(frozen=True)
class CellSummary:
    """Results of one cell.

    Attributes:
        labels: (workload, cluster, routing, eviction).
        seeds: the seeds, in order.
        per_seed: metrics of each seed (`stats.METRICS`).
        metrics: metric -> (mean, minimum, maximum) over seeds.
        ratios: metric -> (paired ratio to the baseline, lower, upper end of its 95 % interval).
        hit_gain: (hit rate - the baseline's, lower, upper end of its 95 % interval), paired.
        published: metric -> published value.
        timing: wall-clock facts of each seed; never part of the simulated results.
        notes: facts about the workload of the first seed.
        classes: priority class or tenant -> metric of `CLASS_METRICS` -> (mean, minimum, maximum) over seeds.
        flags: what about this cell needs a second look.
        oracle: its eviction policy sees the future.
        backend: where the requests were served.
        waterfall: part of `waterfall.PARTS`, and ``believed`` -> (mean, smallest, largest) share of the prompt tokens;
            empty: not known.
        fleet: the fleet's configuration as JSON: alike for a simulated fleet and the real one that it stands for.
    """

    labels: tuple[str, str, str, str]
    seeds: tuple[int, ...]
    per_seed: list[dict[str, float | None]]
    metrics: dict[str, Triple]
    ratios: dict[str, Triple]
    hit_gain: Triple
    published: Mapping[str, float]
    timing: list[dict[str, float]]
    notes: dict[str, Any]
    classes: dict[Class, dict[str, Triple]]
    flags: list[str]
    oracle: bool
    backend: str
    fleet: str
    waterfall: dict[str, Triple] = field(default_factory=dict)

    def mean(self, metric: str) -> float | None:
        """Return the mean of `metric` over seeds."""
        return self.metrics[metric][0]

    @property
    def brief(self) -> dict[str, Any]:
        """Labels, number of seeds and every mean: the entry of `kvgym compare --json`."""
        names = ("workload", "cluster", "routing", "eviction")
        means = {metric: self.mean(metric) for metric in METRICS}
        return {**dict(zip(names, self.labels, strict=True)), "seeds": len(self.seeds), **means}


@dataclass(frozen=True)
class Summary:
    """Results of a grid, in the order of its tables; `baseline` is the (routing, eviction) of the ratios."""

    cells: list[CellSummary]
    baseline: tuple[str, str]


class Runs(Protocol):
    """Finished runs, in a folder (`Store`) or in memory."""

    def has(self, cell: StoredCell, seed: int) -> bool:
        """Return whether the run is finished."""
        ...

    def load(self, cell: StoredCell, seed: int) -> tuple[np.ndarray, dict[str, Any]]:
        """Return its records and its facts: maps ``totals``, ``notes`` and ``timing``."""
        ...


@dataclass(frozen=True)
class _Run:
    """One run, read back and summarised."""

    metrics: dict[str, float | None]
    classes: ClassMetrics
    signs: Signs
    facts: dict[str, Any]


def summarize_grid(
    cells: Sequence[StoredCell],
    seeds: tuple[int, ...],
    baseline: tuple[str, str],
    runs: Runs,
    warmup_s: float,
    slo: SLO | None = None,
) -> Summary:
    """Read the finished `runs` of `cells` back and summarise them; `warmup_s` and `slo` as for `summarize`.

    Runs that are not there are left out, and so is a cell without any; ratios pair the seeds that both cells have.

    Raises:
        ResultsError: a file is damaged or belongs to another run.
    """
    found = {cell.labels: _read(cell, seeds, runs, warmup_s, slo) for cell in cells}
    result = []
    for cell in cells:
        own = found[cell.labels]
        base = found.get((*cell.labels[:2], *baseline), {})
        if own:
            result.append(_summarize_cell(cell, own, base))
    return Summary(result, baseline)


def _summarize_cell(cell: StoredCell, own: dict[int, _Run], base: dict[int, _Run]) -> CellSummary:
    runs = list(own.values())
    rows = [run.metrics for run in runs]
    paired = [(own[seed].metrics, base[seed].metrics) for seed in own if seed in base]
    return CellSummary(
        labels=cell.labels,
        seeds=tuple(own),
        per_seed=rows,
        metrics={metric: spread([row[metric] for row in rows]) for metric in METRICS},
        ratios={m: paired_ratio([a[m] for a, _ in paired], [b[m] for _, b in paired]) for m in RATIO_METRICS},
        hit_gain=paired_difference([a["hit_rate"] for a, _ in paired], [b["hit_rate"] for _, b in paired]),
        published=cell.published,
        timing=[run.facts["timing"] for run in runs],
        notes=runs[0].facts["notes"],
        classes=_class_spreads([run.classes for run in runs]),
        flags=flags({seed: run.signs for seed, run in own.items()}, cell.concentrates),
        oracle=cell.oracle,
        backend=cell.plain.get("backend", SIMULATED),
        fleet=json.dumps(cell.plain.get("cluster"), sort_keys=True),
        waterfall=mean_shares([run.facts["totals"].get("waterfall") for run in runs]),
    )


def _read(cell: StoredCell, seeds: tuple[int, ...], runs: Runs, warmup_s: float, slo: SLO | None) -> dict[int, _Run]:
    """Return seed -> run of `cell` for the finished ones."""
    found = {}
    for seed in seeds:
        if not runs.has(cell, seed):
            continue
        records, facts = runs.load(cell, seed)
        try:
            metrics = summarize(records, facts["totals"], warmup_s, slo)
            seen = signs(records, facts["totals"], metrics, cell.schedule)
        except (KeyError, TypeError, ValueError) as error:
            name = f"{' / '.join(cell.labels)} seed {seed}"
            raise ResultsError(
                f"the totals of {name} are damaged ({error!r}); delete its .json to run it again"
            ) from error
        found[seed] = _Run(metrics, class_metrics(measured(records, warmup_s), slo), seen, facts)
    return found


def _class_spreads(seeds: Sequence[ClassMetrics]) -> dict[Class, dict[str, Triple]]:
    """Return (mean, minimum, maximum) over seeds per class; all None where a seed has no such class."""
    names = sorted({name for found in seeds for name in found})
    return {
        name: {metric: spread([found.get(name, {}).get(metric) for found in seeds]) for metric in CLASS_METRICS}
        for name in names
    }
