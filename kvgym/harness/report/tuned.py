"""Prints what tuning has found: the options, and what they are worth on sessions that they were not tuned on."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console

from kvgym.harness.compare.summary import CellSummary, Triple
from kvgym.harness.measure.statistics import paired_ratio
from kvgym.harness.report.console import print_table, say

METRICS = ("p50_latency_s", "p95_latency_s", "mean_latency_s")
"""What is made smaller: the mean logarithm of their ratios to the untuned router's."""
UNTUNED, TUNED = "untuned", "tuned"


@dataclass(frozen=True)
class Tuned:
    """What a study has found.

    Attributes:
        routing: the router.
        options: the best options.
        trials: how many were tried, those of earlier calls of the same study included.
        gain: of the best on the sessions that it was tuned on: geometric mean of its ratios to the untuned router.
        judged: cells on the other sessions, untuned and tuned.
    """

    routing: str
    options: dict[str, Any]
    trials: int
    gain: float
    judged: list[CellSummary]


def ratios(found: Tuned) -> list[dict[str, Any]]:
    """Return for each workload and fleet the tuned router's paired ratios to the untuned one, with intervals."""
    cells = {cell.labels: cell for cell in found.judged}
    rows = []
    for (workload, cluster, routing, eviction), cell in cells.items():
        if routing == TUNED:
            base = cells[(workload, cluster, UNTUNED, eviction)]
            pairs = {name: _ratio(cell, base, name) for name in METRICS}
            rows.append({"workload": workload, "cluster": cluster, **pairs})
    return rows


def plain(found: Tuned) -> dict[str, Any]:
    """Return it as plain data."""
    return {"routing": found.routing, "options": found.options, "trials": found.trials, "gain": found.gain,
            "held_out": ratios(found)}  # fmt: skip


def print_tuned(console: Console, found: Tuned, out: Path) -> None:
    """Print the options, the gain where they were tuned, and the table of the held-out sessions."""
    options = [
        [name, f"{value:.6g}" if isinstance(value, float) else str(value)] for name, value in found.options.items()
    ]
    print_table(console, ["option", "value"], options, f"{found.routing}, best of {found.trials} trials")
    say(console, f"On the sessions that it was tuned on: {found.gain:.3f} of the untuned router's latencies.", "")
    rows = [[row["workload"], row["cluster"], *(_text(row[name]) for name in METRICS)] for row in ratios(found)]
    header = ["workload", "cluster", "P50 ratio", "P95 ratio", "mean ratio"]
    print_table(console, header, rows, "On the other sessions, tuned / untuned (95 %)", names=2)
    say(console, "", f"as a router: kvgym route {out} --worker URL")


def _ratio(cell: CellSummary, base: CellSummary, metric: str) -> Triple:
    return paired_ratio([row[metric] for row in cell.per_seed], [row[metric] for row in base.per_seed])


def _text(ratio: Triple) -> str:
    value, low, high = ratio
    return "" if value is None else f"{value:.3f}" if low is None else f"{value:.3f} ({low:.3f}-{high:.3f})"
