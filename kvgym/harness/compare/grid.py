"""What is compared: the comparison's configuration and its expansion into cells."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from kvgym.config.cluster import ClusterConfig, resolve_cluster
from kvgym.config.loader import resolve_workload
from kvgym.config.names import table
from kvgym.config.options import build, option, to_plain
from kvgym.config.signals import DEFAULT_SIGNALS, SignalsConfig
from kvgym.config.slo import SLO
from kvgym.costs import resolve_cost
from kvgym.errors import ConfigError, WorkloadError
from kvgym.harness.compare.charge import Charge, check_charge
from kvgym.harness.measure.statistics import METRICS, check_warmup
from kvgym.logs.rows import locate
from kvgym.workloads.base import WorkloadSource

SIMULATED = "simulated"
"""The backend whose runs can be repeated to the last bit."""
_MOST_SEEDS = 1_000_000
"""A larger number is a slip: every run has files of its own."""


@dataclass(frozen=True)
class _WorkloadEntry:
    """A workload of the grid: a preset name, a path or a map under `use`."""

    use: str | dict[str, Any]
    name: str = option("", "label in tables; none: the preset's name")
    optional: bool = option(False, "left out, with a message, when its data file is absent")
    clusters: tuple[str | _ClusterEntry, ...] = option((), "fleets for this workload alone; none: those of the grid")


@dataclass(frozen=True)
class _ClusterEntry:
    """A fleet of the grid: a preset name, a path or a map under `use`."""

    use: str | dict[str, Any]
    name: str = option("", "label in tables; none: the preset's name")
    backend: str = option("", "simulated or sglang; none: the comparison's")


@dataclass(frozen=True)
class _RoutingEntry:
    """A routing controller with options for its constructor."""

    use: str
    options: dict[str, Any] = field(default_factory=dict)
    name: str = option("", "label in tables; none: the controller's name")


@dataclass(frozen=True)
class _Pair:
    """A routing controller and an eviction policy, and what was published about them."""

    routing: str | _RoutingEntry
    eviction: str
    published: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class CompareConfig:
    """A grid of workloads x fleets x (routing x eviction, or the listed `cells`) x seeds.

    Raises:
        ConfigError: nothing to run, an unknown published metric, or published values that fit no single cell.
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

    @property
    def seed_list(self) -> tuple[int, ...]:
        """The seeds."""
        return self.seeds if isinstance(self.seeds, tuple) else tuple(range(self.seeds))

    @property
    def live(self) -> bool:
        """Whether some requests are served by real servers."""
        workloads = [_entry(workload, _WorkloadEntry) for workload in self.workloads]
        clusters = [cluster for workload in workloads for cluster in workload.clusters or self.clusters]
        return any((_entry(cluster, _ClusterEntry).backend or self.backend) != SIMULATED for cluster in clusters)

    @property
    def deterministic(self) -> bool:
        """Whether a rerun gives the same results."""
        return self.charge_decision_time != "measured" and not self.live

    @property
    def pairs(self) -> tuple[_Pair, ...]:
        """The (routing, eviction) pairs in the order of the tables."""
        return self.cells or tuple(_Pair(routing, eviction) for routing in self.routing for eviction in self.eviction)


@dataclass(frozen=True)
class Cell:
    """One column of the comparison: everything that determines a run but the seed."""

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


@dataclass(frozen=True)
class StoredCell:
    """A cell as its folder describes it: enough to find and summarise its runs, on any machine."""

    labels: tuple[str, str, str, str]
    plain: Mapping[str, Any]
    published: Mapping[str, float]
    concentrates: str = ""  # why its router may send nearly everything to one worker; empty: it should not
    oracle: bool = False  # its eviction policy sees the future

    @property
    def workload(self) -> str:
        """Label of the workload."""
        return self.labels[0]

    @property
    def cluster(self) -> str:
        """Label of the fleet."""
        return self.labels[1]


def load_compare(data: Mapping[str, Any]) -> CompareConfig:
    """Return the checked comparison for plain `data` (see `CompareConfig`)."""
    return build(CompareConfig, data, "compare")


def expand(config: CompareConfig) -> tuple[list[Cell], list[str]]:
    """Return the cells in the order of the tables, and one message per optional workload that is left out.

    Raises:
        ConfigError, UnknownNameError: a preset, file or plug-in does not exist, or two cells carry the same labels.
    """
    for pair in config.pairs:
        table("routing").load(_entry(pair.routing, _RoutingEntry).use)
        if table("eviction").load(pair.eviction).oracle and not config.bounds:
            raise ConfigError(f"eviction policy {pair.eviction!r} sees the future; set bounds: true to allow that")
    cells: list[Cell] = []
    skipped: list[str] = []
    for item in config.workloads:
        workload = _entry(item, _WorkloadEntry)
        source = resolve_workload(workload.use)
        label = workload.name or _label(workload.use, "source")
        try:
            data_files(source)
        except WorkloadError as error:
            if not workload.optional:
                raise
            skipped.append(f"{label} is left out: {error}")
            continue
        for entry in workload.clusters or config.clusters:
            cluster = _entry(entry, _ClusterEntry)
            fleet = resolve_cluster(cluster.use)
            resolve_cost(fleet.cost)
            backend = cluster.backend or config.backend
            table("backends").load(backend)
            fleet_label = cluster.name or _label(cluster.use, "cost")
            for pair in config.pairs:
                if backend == SIMULATED and _needs_server(pair):
                    continue
                cells.append(_cell(label, source, fleet_label, fleet, pair, config, backend))
    if not cells:
        raise ConfigError(f"every workload is left out: {'; '.join(skipped)}")
    _check_cells(cells)
    return cells, skipped


def data_files(source: WorkloadSource) -> list[Path]:
    """Return the files that `source` reads: those named by its fields `path` and `tokenizer`.

    Raises:
        WorkloadError: one is absent.
    """
    return [locate(name) for field in ("path", "tokenizer") if (name := getattr(source, field, None))]


def model_files(cell: Cell) -> list[Path]:
    """Return the files of a learned router and a learned eviction policy: a changed model is another one."""
    router = cell.controller if cell.controller.endswith(".zip") else cell.options.get("path")
    given = (router, cell.eviction if cell.eviction.endswith(".json") else None)
    return [Path(name) for name in given if name and Path(name).is_file()]


def _cell(
    workload: str,
    source: WorkloadSource,
    cluster: str,
    fleet: ClusterConfig,
    pair: _Pair,
    config: CompareConfig,
    backend: str,
) -> Cell:
    if backend != SIMULATED and config.charge_decision_time != 0.0:
        raise ConfigError(f"charge_decision_time must be 0 with backend {backend}: real decisions take real time")
    if config.bounds and (backend != SIMULATED or fleet.schedule):
        raise ConfigError(f"bounds need a simulated fleet in which nothing fails, {cluster} is not")
    if config.bounds and len(set(fleet.network_delays_s)) > 1:
        raise ConfigError(
            f"bounds need clients at the same distance from each worker, the regions of {cluster} have network_s "
            f"{list(fleet.network_delays_s)}"
        )
    if backend != SIMULATED and fleet.live is None:
        raise ConfigError(f"backend {backend} needs a cluster with a `live` part, {cluster} has none")
    routing = _entry(pair.routing, _RoutingEntry)
    return Cell(
        workload=workload,
        source=source,
        cluster=cluster,
        fleet=fleet,
        routing=routing.name or routing.use,
        controller=routing.use,
        options=routing.options,
        eviction=pair.eviction,
        published=pair.published,
        charge_decision_time=config.charge_decision_time,
        signals=config.signals,
        backend=backend,
        bounds=config.bounds,
    )


def _needs_server(pair: _Pair) -> bool:
    """Whether the pair's routing is a real router, which has nothing to do in a simulation."""
    return bool(getattr(table("routing").load(_entry(pair.routing, _RoutingEntry).use), "live_only", False))


def _check_cells(cells: list[Cell]) -> None:
    seen: set[tuple[str, ...]] = set()
    for cell in cells:
        if cell.labels in seen:
            raise ConfigError(f"two cells are called {' / '.join(cell.labels)}; give one of them a name of its own")
        seen.add(cell.labels)
    grids = {(cell.workload, cell.cluster) for cell in cells}
    if len(grids) > 1 and any(cell.published for cell in cells):
        raise ConfigError(f"published values need a grid of one workload and one cluster, got {len(grids)}")


def baseline_labels(config: CompareConfig) -> tuple[str, str]:
    """Return (routing, eviction) of the pair that ratios refer to.

    Raises:
        ConfigError: the configured baseline is not among the pairs.
    """
    pair = baseline_pair(config)
    return _name(pair), pair.eviction


def baseline_pair(config: CompareConfig) -> _Pair:
    """Return the pair that ratios refer to, as the grid has it.

    Raises:
        ConfigError: the configured baseline is not among the pairs.
    """
    if config.baseline is None:
        return config.pairs[0]
    names = [(_name(pair), pair.eviction) for pair in config.pairs]
    wanted = (_name(config.baseline), config.baseline.eviction)
    if wanted not in names:
        known = ", ".join(" + ".join(name) for name in names)
        raise ConfigError(f"baseline {' + '.join(wanted)} is not in the grid; there are: {known}")
    return config.pairs[names.index(wanted)]


def _name(pair: _Pair) -> str:
    routing = _entry(pair.routing, _RoutingEntry)
    return routing.name or routing.use


def _entry(given: Any, cls: Any) -> Any:
    return cls(use=given) if isinstance(given, str) else given


def _label(use: str | Mapping[str, Any], key: str) -> str:
    return Path(use).stem if isinstance(use, str) else str(use.get(key, "custom"))
