"""A cell of a comparison holds what determines its runs; another form is what is kept of it in a folder."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from kvgym.config.cluster import ClusterConfig
from kvgym.config.options import to_plain
from kvgym.config.schedule import FleetEvent
from kvgym.config.signals import DEFAULT_SIGNALS, SignalsConfig
from kvgym.harness.compare.charge import Charge
from kvgym.workloads.base import WorkloadSource

SIMULATED = "simulated"
"""The backend whose runs can be repeated to the last bit."""


@dataclass(frozen=True)
class Cell:
    """One column of the comparison: everything that determines a run but the seed.

    Plain values only, because cells travel to other processes: plug-ins stand here by name and what is known of them.
    """

    workload: str
    source: WorkloadSource
    cluster: str
    fleet: ClusterConfig
    routing: str
    controller: str
    options: Mapping[str, Any]
    eviction: str
    published: Mapping[str, float]
    charge_decision_time: Charge = 0.0
    signals: SignalsConfig = DEFAULT_SIGNALS
    backend: str = SIMULATED
    bounds: bool = False
    concentrates: str = ""  # why its router may send nearly everything to one worker; empty: it should not
    oracle: bool = False  # its eviction policy sees the future

    @property
    def labels(self) -> tuple[str, str, str, str]:
        """(workload, cluster, routing, eviction) as shown in tables; unique in a grid."""
        return self.workload, self.cluster, self.routing, self.eviction

    @property
    def plain(self) -> dict[str, Any]:
        """What determines the results, as plain data."""
        kind = f"{type(self.source).__module__}:{type(self.source).__qualname__}"
        return {
            "workload": {"class": kind, **to_plain(self.source)},
            "cluster": to_plain(self.fleet),
            "routing": {"use": self.controller, "options": to_plain(self.options)},
            "eviction": self.eviction,
            "charge_decision_time": self.charge_decision_time,
            "signals": to_plain(self.signals),
            "backend": self.backend,
            "bounds": self.bounds,
        }

    @property
    def stored(self) -> StoredCell:
        """What its folder keeps of it."""
        return StoredCell(self.labels, self.plain, self.published, self.concentrates, self.oracle)


@dataclass(frozen=True)
class StoredCell:
    """A cell as its folder describes it: enough to find and summarise its runs, on any machine."""

    labels: tuple[str, str, str, str]
    plain: Mapping[str, Any]
    published: Mapping[str, float]
    concentrates: str = ""
    oracle: bool = False

    @property
    def workload(self) -> str:
        """Label of the workload."""
        return self.labels[0]

    @property
    def cluster(self) -> str:
        """Label of the fleet."""
        return self.labels[1]

    @property
    def schedule(self) -> tuple[FleetEvent, ...]:
        """When its workers joined, failed and came back."""
        return tuple(FleetEvent(**entry) for entry in self.plain["cluster"].get("schedule", ()))
