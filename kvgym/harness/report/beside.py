"""Puts what the simulator says of a fleet beside what the real servers of the same fleet have shown."""

from __future__ import annotations

from collections.abc import Sequence

from kvgym.harness.compare.cell import SIMULATED
from kvgym.harness.compare.summary import CellSummary

COLUMNS: tuple[tuple[str, str, float, str], ...] = (
    ("hit rate %", "hit_rate", 100.0, ".1f"),
    ("evicted tokens", "evicted_tokens", 1.0, ".0f"),
    ("imbalance", "load_imbalance", 1.0, ".2f"),
    ("P50 TTFT ms", "p50_ttft_s", 1000.0, ".0f"),
    ("P50 latency ms", "p50_latency_s", 1000.0, ".0f"),
    ("P95 latency ms", "p95_latency_s", 1000.0, ".0f"),
)
"""(heading, metric, factor, format) of what is shown twice."""
TITLE = "Simulated / real servers"
"""Heading of the table."""


def beside_rows(cells: Sequence[CellSummary]) -> tuple[list[str], list[list[str]]] | None:
    """Return header and rows, each value as ``simulated / real``; None where not both kinds of fleet are there.

    A row is a workload and a pair on a fleet with real servers; ``-`` stands for a simulated cell that is absent, as
    that of a real router is.
    """
    simulated = {(cell.fleet, cell.labels[0], *cell.labels[2:]): cell for cell in cells if cell.backend == SIMULATED}
    real = [cell for cell in cells if cell.backend != SIMULATED]
    if not simulated or not real:
        return None
    header = ["workload", "routing", "eviction", *(heading for heading, *_ in COLUMNS)]
    rows = []
    for cell in real:
        twin = simulated.get((cell.fleet, cell.labels[0], *cell.labels[2:]))
        values = [f"{_mean(twin, *how)} / {_mean(cell, *how)}" for how in ((m, f, s) for _, m, f, s in COLUMNS)]
        rows.append([cell.labels[0], *cell.labels[2:], *values])
    return header, rows


def _mean(cell: CellSummary | None, metric: str, factor: float, style: str) -> str:
    value = None if cell is None else cell.mean(metric)
    return "-" if value is None else format(value * factor, style)
