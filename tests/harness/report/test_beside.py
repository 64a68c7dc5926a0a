"""Simulated and real values of the same fleet stand in one row."""

from __future__ import annotations

import dataclasses
from typing import Any

from kvgym.harness.compare.summary import CellSummary
from kvgym.harness.measure.statistics import METRICS
from kvgym.harness.report.beside import COLUMNS, beside_rows


def cell(backend: str, routing: str, hit_rate: float | None, fleet: str = "{}") -> CellSummary:
    values: dict[str, Any] = dict.fromkeys(METRICS, (None, None, None))
    values["hit_rate"] = (hit_rate, hit_rate, hit_rate)
    labels = ("load", f"{backend} fleet", routing, "lru")
    unused = dict.fromkeys(field.name for field in dataclasses.fields(CellSummary))
    return CellSummary(**{**unused, "labels": labels, "metrics": values, "backend": backend, "fleet": fleet})


def test_beside_rows__pairs_by_workload_fleet_and_controllers() -> None:
    cells = [
        cell("simulated", "ours", 0.5),
        cell("simulated", "ours", 0.9, fleet='{"workers": 4}'),
        cell("sglang", "ours", 0.25),
        cell("sglang", "theirs", 0.75),
    ]
    found = beside_rows(cells)
    assert found is not None
    header, rows = found
    assert header[:4] == ["workload", "routing", "eviction", "hit rate %"]
    assert [row[:4] for row in rows] == [["load", "ours", "lru", "50.0 / 25.0"], ["load", "theirs", "lru", "- / 75.0"]]
    assert all(len(row) == 3 + len(COLUMNS) for row in rows)


def test_beside_rows__nothing_to_compare() -> None:
    assert beside_rows([cell("simulated", "ours", 0.5)]) is None
    assert beside_rows([cell("sglang", "ours", 0.5)]) is None
