"""Runs one cell with one seed for `kvgym run`, and says what came out."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np

from kvgym.config.cluster import resolve_cluster
from kvgym.config.loader import apply_overrides, load_config, mistakes_in, resolve_workload
from kvgym.config.names import table
from kvgym.config.options import build
from kvgym.config.signals import DEFAULT_SIGNALS, SignalsConfig
from kvgym.config.slo import SLO
from kvgym.harness.compare.cell import Cell
from kvgym.harness.compare.charge import check_charge
from kvgym.harness.compare.run import RunResult, run
from kvgym.harness.measure.flags import flags, signs
from kvgym.harness.measure.statistics import check_warmup, summarize
from kvgym.harness.tools.trace import write_trace
from kvgym.records import check_ending, check_target, write_records
from kvgym.types import DONE


class Measure(NamedTuple):
    """What `summarize` needs besides the run."""

    warmup_s: float = 0.0
    slo: SLO | None = None


@dataclass(frozen=True)
class _Settings:
    """What ``--set`` reaches."""

    workload: Any
    cluster: Any
    options: dict[str, Any] = field(default_factory=dict)
    signals: SignalsConfig = DEFAULT_SIGNALS
    slo: SLO | None = None
    warmup_s: float = 0.0
    charge_decision_time: float | Literal["measured"] = 0.0

    def __post_init__(self) -> None:
        check_warmup(self.warmup_s)
        check_charge(self.charge_decision_time)


def run_single(
    workload: str,
    cluster: str,
    routing: str,
    eviction: str,
    seed: int,
    overrides: Iterable[str],
    records: Path | None = None,
    trace: Path | None = None,
) -> dict[str, Any]:
    """Return names, seed, metrics, timing, flags and the workers' shares of one run.

    Args:
        workload: preset name or path of the workload.
        cluster: preset name or path of the fleet.
        routing: routing controller.
        eviction: eviction policy.
        seed: seed of the episode.
        overrides: settings of ``workload.*``, ``cluster.*``, ``signals.*``, ``options.*`` (of the controller),
            ``slo.*``, ``warmup_s`` and ``charge_decision_time`` (as in a comparison).
        records: Parquet file for the request records; none: not written.
        trace: JSON file in Chrome's trace event format; none: not written.

    Raises:
        KVGymError: a name, a setting or the file is not acceptable.
    """
    cell, measure = single_cell(workload, cluster, routing, eviction, overrides)
    for path, ending in ((records, ".parquet"), (trace, ".json")):
        if path is not None:
            check_target(path)
            check_ending(path, ending)
    result = run(cell, seed)
    if records is not None:
        write_records(records, result.records)
    if trace is not None:
        write_trace(trace, result.records, result.samples)
    return outcome(cell, seed, result, measure)


def single_cell(
    workload: str, cluster: str, routing: str, eviction: str, overrides: Iterable[str]
) -> tuple[Cell, Measure]:
    """Return the cell that these names and settings describe, and how it is measured; otherwise as `run_single`."""
    overrides = list(overrides)
    settings = _settings(workload, cluster, overrides)
    return _cell(settings, workload, cluster, routing, eviction, overrides), Measure(settings.warmup_s, settings.slo)


def _settings(workload: str, cluster: str, overrides: Iterable[str]) -> _Settings:
    given = {"workload": load_config("workloads", workload), "cluster": load_config("clusters", cluster)}
    return build(_Settings, apply_overrides(given, overrides), "settings")


def _cell(settings: _Settings, workload: str, cluster: str, routing: str, eviction: str, overrides: list[str]) -> Cell:
    table("routing").load(routing)
    table("eviction").load(eviction)
    with mistakes_in(workload, overrides):
        source = resolve_workload(settings.workload)
    with mistakes_in(cluster, overrides):
        fleet = resolve_cluster(settings.cluster)
    charge = settings.charge_decision_time
    names = workload, source, cluster, fleet, routing, routing
    return Cell(*names, settings.options, eviction, {}, charge, signals=settings.signals)


def outcome(cell: Cell, seed: int, result: RunResult, measure: Measure) -> dict[str, Any]:
    """Return names, seed, metrics, timing, flags and the workers' shares of a finished run."""
    metrics = summarize(result.records, result.totals, *measure)
    reason = getattr(table("routing").load(cell.controller), "concentrates", "")
    seen = signs(result.records, result.totals, metrics, cell.fleet.schedule)
    return {
        **dict(zip(("workload", "cluster", "routing", "eviction"), cell.labels, strict=True)),
        "seed": seed,
        "deterministic": cell.charge_decision_time != "measured",
        **metrics,
        "decisions": result.decisions,
        "wall_s": result.wall_s,
        "decision_s": result.decision_s,
        "flags": flags({seed: seen}, reason),
        "workers": _workers(result),
        "waterfall": result.totals.get("waterfall"),
    }


def _workers(result: RunResult) -> list[dict[str, float | None]]:
    """Return per worker its share of the requests that were sent anywhere, and what it did with them."""
    busy_s, evicted, records = result.totals["busy_s"], result.totals["evicted_tokens"], result.records
    sent = np.bincount(records["worker"][records["worker"] >= 0], minlength=len(busy_s))
    found: list[dict[str, float | None]] = []
    for worker, requests in enumerate(sent.tolist()):
        own = records[(records["worker"] == worker) & (records["status"] == DONE)]
        prompted = int(own["prompt_tokens"].sum())
        shares = {
            "requests_share": requests / max(int(sent.sum()), 1),
            "hit_rate": int(own["hit_tokens"].sum()) / prompted if prompted else None,
        }
        found.append({"requests": requests, **shares, "busy_s": busy_s[worker], "evicted_tokens": evicted[worker]})
    return found
