"""Runs one cell with one seed for `kvgym run`, and says what came out."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from kvgym.cluster import resolve_cluster
from kvgym.config import apply_overrides, load_config, resolve_workload
from kvgym.errors import ConfigError, ResultsError
from kvgym.harness.grid import Cell
from kvgym.harness.run import RunResult, run
from kvgym.harness.stats import summarize
from kvgym.records import write_records
from kvgym.tables import table


def run_single(
    workload: str,
    cluster: str,
    routing: str,
    eviction: str,
    seed: int,
    overrides: Iterable[str],
    records: Path | None = None,
) -> dict[str, Any]:
    """Return names, seed, metrics and timing of one run.

    Args:
        workload: preset name or path of the workload.
        cluster: preset name or path of the fleet.
        routing: routing controller.
        eviction: eviction policy.
        seed: seed of the episode.
        overrides: ``workload.*``, ``cluster.*`` and ``options.*`` (of the controller) settings.
        records: Parquet file for the request records; none: not written.

    Raises:
        KVGymError: a name, a setting or the file is not acceptable.
    """
    cell = single_cell(workload, cluster, routing, eviction, overrides)
    if records is not None and not records.parent.is_dir():
        raise ResultsError(f"cannot write {records}: no folder {records.parent}")
    result = run(cell, seed)
    if records is not None:
        write_records(records, result.records)
    return outcome(cell, seed, result)


def single_cell(workload: str, cluster: str, routing: str, eviction: str, overrides: Iterable[str]) -> Cell:
    """Return the cell that these names and settings describe; arguments and errors as for `run_single`."""
    data: dict[str, Any] = {
        "workload": load_config("workloads", workload),
        "cluster": load_config("clusters", cluster),
        "options": {},
    }
    known = set(data)
    data = apply_overrides(data, overrides)
    if unknown := sorted(set(data) - known):
        raise ConfigError(f"--set takes workload.*, cluster.* or options.*, got {unknown[0]!r}")
    table("routing").load(routing)
    table("eviction").load(eviction)
    source, fleet = resolve_workload(data["workload"]), resolve_cluster(data["cluster"])
    return Cell(workload, source, cluster, fleet, routing, routing, data["options"], eviction, {})


def outcome(cell: Cell, seed: int, result: RunResult) -> dict[str, Any]:
    """Return names, seed, metrics and timing of a finished run."""
    return {
        **dict(zip(("workload", "cluster", "routing", "eviction"), cell.labels, strict=True)),
        "seed": seed,
        **summarize(result.records, result.totals),
        "decisions": result.decisions,
        "wall_s": result.wall_s,
        "decision_s": result.decision_s,
    }
