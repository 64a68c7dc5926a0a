"""Brings the runs of a grid together: per cell the metrics of each seed, their spread and ratios to the baseline."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kvgym.harness.classes import CLASS_METRICS, Class, ClassMetrics, class_metrics
from kvgym.harness.grid import Cell
from kvgym.harness.stats import METRICS, RATIO_METRICS, measured, paired_ratio, spread, summarize
from kvgym.harness.store import Store
from kvgym.slo import SLO

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
        published: metric -> published value.
        timing: wall-clock facts of each seed; never part of the simulated results.
        notes: facts about the workload of the first seed.
        classes: priority class or tenant -> metric of `CLASS_METRICS` -> (mean, minimum, maximum) over seeds.
    """

    labels: tuple[str, str, str, str]
    seeds: tuple[int, ...]
    per_seed: list[dict[str, float | None]]
    metrics: dict[str, Triple]
    ratios: dict[str, Triple]
    published: Mapping[str, float]
    timing: list[dict[str, float]]
    notes: dict[str, Any]
    classes: dict[Class, dict[str, Triple]]

    def mean(self, metric: str) -> float | None:
        """Return the mean of `metric` over seeds."""
        return self.metrics[metric][0]

    @property
    def brief(self) -> dict[str, Any]:
        """Labels, number of seeds and every mean: the entry of the JSON last line."""
        names = ("workload", "cluster", "routing", "eviction")
        means = {metric: self.mean(metric) for metric in METRICS}
        return {**dict(zip(names, self.labels, strict=True)), "seeds": len(self.seeds), **means}


@dataclass(frozen=True)
class Summary:
    """Results of a grid, in the order of its tables; `baseline` is the (routing, eviction) of the ratios."""

    cells: list[CellSummary]
    baseline: tuple[str, str]


def summarize_grid(
    cells: Sequence[Cell],
    seeds: tuple[int, ...],
    baseline: tuple[str, str],
    store: Store,
    warmup_s: float,
    slo: SLO | None = None,
) -> Summary:
    """Read the finished runs of `cells` back from `store` and summarise them; `warmup_s` and `slo` as for `summarize`.

    Raises:
        ResultsError: a file is damaged or belongs to another run.
    """
    per_seed: dict[tuple[str, ...], list[dict[str, float | None]]] = {}
    facts: dict[tuple[str, ...], list[dict[str, Any]]] = {}
    classes: dict[tuple[str, ...], list[ClassMetrics]] = {}
    for cell in cells:
        per_seed[cell.labels], facts[cell.labels], classes[cell.labels] = [], [], []
        for seed in seeds:
            records, fact = store.load(cell, seed)
            per_seed[cell.labels].append(summarize(records, fact["totals"], warmup_s, slo))
            facts[cell.labels].append(fact)
            classes[cell.labels].append(class_metrics(measured(records, warmup_s), slo))
    result = []
    for cell in cells:
        own = per_seed[cell.labels]
        base = per_seed[(cell.workload, cell.cluster, *baseline)]
        result.append(
            CellSummary(
                labels=cell.labels,
                seeds=seeds,
                per_seed=own,
                metrics={metric: spread([row[metric] for row in own]) for metric in METRICS},
                ratios={m: paired_ratio([row[m] for row in own], [row[m] for row in base]) for m in RATIO_METRICS},
                published=cell.published,
                timing=[fact["timing"] for fact in facts[cell.labels]],
                notes=facts[cell.labels][0]["notes"],
                classes=_class_spreads(classes[cell.labels]),
            )
        )
    return Summary(result, baseline)


def _class_spreads(seeds: Sequence[ClassMetrics]) -> dict[Class, dict[str, Triple]]:
    """Return (mean, minimum, maximum) over seeds per class; all None where a seed has no such class."""
    names = sorted({name for found in seeds for name in found})
    return {
        name: {metric: spread([found.get(name, {}).get(metric) for found in seeds]) for metric in CLASS_METRICS}
        for name in names
    }
