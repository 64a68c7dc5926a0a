"""A comparison is configured here; `kvgym.harness.compare.plan` makes a plan of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from kvgym.config.options import build, option
from kvgym.config.signals import DEFAULT_SIGNALS, SignalsConfig
from kvgym.config.slo import SLO
from kvgym.errors import ConfigError
from kvgym.harness.compare.cell import SIMULATED
from kvgym.harness.compare.charge import check_charge
from kvgym.harness.compare.variants import written_out
from kvgym.harness.measure.statistics import METRICS, check_warmup

_MOST_SEEDS = 1_000_000
"""A larger number is a slip: every run has files of its own."""


@dataclass(frozen=True)
class _WorkloadEntry:
    """A workload of the grid: a preset name, a path or a map under `use`."""

    use: str | dict[str, Any]
    name: str = option("", "label in tables; none: the preset's name")
    optional: bool = option(False, "left out, with a message, when its data file is absent")
    clusters: tuple[str | _ClusterEntry, ...] = option((), "fleets for this workload alone; none: those of the grid")

    @property
    def label(self) -> str:
        """Its name in tables."""
        return self.name or _label(self.use, "source")


@dataclass(frozen=True)
class _ClusterEntry:
    """A fleet of the grid: a preset name, a path or a map under `use`."""

    use: str | dict[str, Any]
    name: str = option("", "label in tables; none: the preset's name")
    backend: str = option("", "simulated or sglang; none: the comparison's")

    @property
    def label(self) -> str:
        """Its name in tables."""
        return self.name or _label(self.use, "cost")


@dataclass(frozen=True)
class _RoutingEntry:
    """A routing controller with options for its constructor."""

    use: str
    options: dict[str, Any] = field(default_factory=dict)
    name: str = option("", "label in tables; none: the controller's name")

    @property
    def label(self) -> str:
        """Its name in tables."""
        return self.name or self.use


@dataclass(frozen=True)
class _Pair:
    """A routing controller and an eviction policy, and what was published about them."""

    routing: str | _RoutingEntry
    eviction: str
    published: dict[str, float] = field(default_factory=dict)

    @property
    def router(self) -> _RoutingEntry:
        """The routing controller, written out."""
        return _entry(self.routing, _RoutingEntry)

    @property
    def labels(self) -> tuple[str, str]:
        """(routing, eviction) as shown in tables."""
        return self.router.label, self.eviction


@dataclass(frozen=True)
class CompareConfig:
    """A grid of workloads x fleets x (routing x eviction, or the listed `cells`) x seeds.

    Raises:
        ConfigError: nothing to run, an unknown published metric, or a baseline that is not in the grid.
    """

    name: str
    workloads: tuple[str | _WorkloadEntry, ...]
    clusters: tuple[str | _ClusterEntry, ...] = option(("l40x4",), "fleets")
    routing: tuple[str | _RoutingEntry, ...] = option((), "routing controllers")
    eviction: tuple[str, ...] = option((), "eviction policies")
    cells: tuple[_Pair, ...] = option((), "explicit pairs in place of routing x eviction")
    seeds: int | tuple[int, ...] = option(3, "number of seeds (0, 1, ...), or the seeds")
    baseline: _Pair | None = option(None, "the pair that ratios refer to; none: the first")
    warmup_s: float = option(0.0, "requests arriving earlier are left out of what is measured per request", "s")
    slo: SLO | None = option(
        None, "limits ttft_s, tpot_s, latency_s that goodput is measured against; none: no goodput"
    )
    charge_decision_time: float | Literal["measured"] = option(
        0.0, "what each decision takes in simulated time, or 'measured' (then no two runs are the same)", "s"
    )
    signals: SignalsConfig = option(DEFAULT_SIGNALS, "what the routers see, and how many there are")
    backend: str = option("simulated", "where requests are served: simulated, or sglang (real servers)")
    bounds: bool = option(
        False,
        "show the most that any eviction policy could have hit, and let policies run that see the future (belady)",
    )
    notes: str = option("", "text for the report")

    def __post_init__(self) -> None:
        if not self.name or any(part in self.name for part in ("/", "\\", "..", "\0")):
            raise ConfigError(f"name must be usable as a folder name, without separators, got {self.name!r}")
        if bool(self.cells) == bool(self.routing or self.eviction):
            raise ConfigError("give either cells, or routing and eviction")
        if not self.cells and not (self.routing and self.eviction):
            raise ConfigError("routing and eviction must both name at least one entry")
        if not isinstance(self.seeds, tuple) and not 1 <= self.seeds <= _MOST_SEEDS:
            raise ConfigError(f"seeds must be 1 to {_MOST_SEEDS:,}, or a list of seeds, got {self.seeds}")
        if not (self.workloads and self.clusters and self.seed_list):
            raise ConfigError("workloads, clusters and seeds must not be empty")
        if min(self.seed_list) < 0 or len(set(self.seed_list)) != len(self.seed_list):
            raise ConfigError(f"seeds must be distinct and not negative, got {list(self.seed_list)}")
        check_warmup(self.warmup_s)
        check_charge(self.charge_decision_time)
        if self.bounds and self.warmup_s:
            raise ConfigError("bounds count whole runs: they need warmup_s: 0")
        for pair in self.cells:
            if unknown := sorted(set(pair.published) - set(METRICS)):
                raise ConfigError(f"unknown published metric {unknown[0]!r}; known: {', '.join(METRICS)}")
        names = [pair.labels for pair in self.pairs]
        if self.baseline is not None and self.baseline.labels not in names:
            known = ", ".join(" + ".join(name) for name in names)
            raise ConfigError(f"baseline {' + '.join(self.baseline.labels)} is not in the grid; there are: {known}")

    @property
    def seed_list(self) -> tuple[int, ...]:
        """The seeds."""
        return self.seeds if isinstance(self.seeds, tuple) else tuple(range(self.seeds))

    @property
    def grid(self) -> list[tuple[_WorkloadEntry, list[_ClusterEntry]]]:
        """Each workload with its fleets, written out."""
        workloads = [_entry(workload, _WorkloadEntry) for workload in self.workloads]
        return [(w, [_entry(cluster, _ClusterEntry) for cluster in w.clusters or self.clusters]) for w in workloads]

    @property
    def live(self) -> bool:
        """Whether some requests are served by real servers."""
        return any((fleet.backend or self.backend) != SIMULATED for _, fleets in self.grid for fleet in fleets)

    @property
    def deterministic(self) -> bool:
        """Whether a rerun gives the same results."""
        return self.charge_decision_time != "measured" and not self.live

    @property
    def pairs(self) -> tuple[_Pair, ...]:
        """The (routing, eviction) pairs in the order of the tables."""
        return self.cells or tuple(_Pair(routing, eviction) for routing in self.routing for eviction in self.eviction)

    @property
    def baseline_pair(self) -> _Pair:
        """The pair that ratios refer to, as the grid has it."""
        if self.baseline is None:
            return self.pairs[0]
        return next(pair for pair in self.pairs if pair.labels == self.baseline.labels)


def load_compare(data: Mapping[str, Any]) -> CompareConfig:
    """Return the checked comparison for plain `data` (see `CompareConfig`); `set` and `vary` are written out first."""
    return build(CompareConfig, written_out(data), "compare")


def _entry(given: Any, cls: Any) -> Any:
    """Return an entry of the grid, written out where it is a name alone."""
    return cls(use=given) if isinstance(given, str) else given


def _label(use: str | Mapping[str, Any], key: str) -> str:
    return Path(use).stem if isinstance(use, str) else str(use.get(key, "custom"))
