"""Holds what `kvgym plan` has found: per pair the fleet that keeps an objective and the load that a fleet keeps."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

from kvgym.config.slo import SLO
from kvgym.harness.measure.bisection import Estimate

METRICS = ("goodput_share", "p95_latency_s", "hit_rate")
"""What is kept of each run."""
Key = tuple[str, str, str, str]
"""Labels of a cell: workload, cluster, routing, eviction."""


@dataclass(frozen=True)
class Objective:
    """What a fleet has to keep: the limits, the share of the requests that must stay within them, and for which seeds.

    Attributes:
        slo: limits of a request.
        share: of the requests that ended, 0 to 1; 0.95 with a limit on the latency says P95.
        warmup_s: requests that arrive earlier do not count.
        seeds: the same at every point.
    """

    slo: SLO
    share: float
    warmup_s: float
    seeds: tuple[int, ...]


@dataclass(frozen=True)
class Sized:
    """What was found for one pair on one workload and kind of worker.

    Attributes:
        labels: (workload, cluster, routing, eviction).
        workers: smallest fleet that keeps the objective.
        extra: (mean, lower, upper end) of the workers it needs more than the best pair, paired over seeds; None: not
            known, or it is the best pair.
        at: `METRICS` at that fleet, means over seeds.
        fleet: workers of the fleet as configured.
        rps: the highest load that this fleet keeps, requests per second: (value, low, high); None: not searched for.
    """

    labels: Key
    workers: Estimate
    extra: tuple[float | None, float | None, float | None] | None
    at: Mapping[str, float | None]
    fleet: int
    rps: tuple[float | None, float | None, float | None] | None

    @property
    def plain(self) -> dict[str, Any]:
        """All of it as plain data."""
        names = dict(zip(("workload", "cluster", "routing", "eviction"), self.labels, strict=True))
        load = dict(zip(("value", "low", "high"), self.rps, strict=True)) if self.rps else None
        extra = dict(zip(("mean", "low", "high"), self.extra, strict=True)) if self.extra else None
        found = {"workers": asdict(self.workers), "extra_workers": extra, "there": dict(self.at)}
        return {**names, **found, "fleet_workers": self.fleet, "load_rps": load}


class Sizing(NamedTuple):
    """All that was found, best pair of each workload first, and how."""

    sized: list[Sized]
    objective: Objective
    most: int
    runs: int
