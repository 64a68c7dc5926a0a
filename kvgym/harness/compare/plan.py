"""Makes a plan of a comparison, once: checked cells, their tasks and files, which runs, manifest and reports go by."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kvgym.config.cluster import ClusterConfig, resolve_cluster
from kvgym.config.engines import check_eviction
from kvgym.config.loader import resolve_workload
from kvgym.config.names import table
from kvgym.costs import step_costs
from kvgym.errors import ConfigError, WorkloadError
from kvgym.harness.compare.cell import SIMULATED, Cell
from kvgym.harness.compare.grid import CompareConfig
from kvgym.harness.compare.run import check_oracle, make_controller
from kvgym.logs.rows import locate
from kvgym.workloads.base import WorkloadSource

Task = tuple[Cell, int]
"""A cell and the seed of one run."""


@dataclass(frozen=True)
class Plan:
    """What a comparison is going to run.

    Attributes:
        config: the comparison.
        cells: its cells in the order of the tables; labels are unique.
        skipped: a message per optional workload that is left out.
        files: data and model files that the results depend on, sorted.
    """

    config: CompareConfig
    cells: tuple[Cell, ...]
    skipped: tuple[str, ...]
    files: tuple[Path, ...]

    @property
    def baseline(self) -> tuple[str, str]:
        """(routing, eviction) of the pair that ratios refer to."""
        return self.config.baseline_pair.labels

    @property
    def tasks(self) -> list[Task]:
        """Every run: those of one workload and seed together, so that a process compiles each episode once."""
        groups: dict[tuple[str, int], list[Cell]] = {}
        for cell in self.cells:
            groups.setdefault((cell.workload, cell.fleet.page_size), []).append(cell)
        return [(cell, seed) for group in groups.values() for seed in self.config.seed_list for cell in group]

    def check(self) -> None:
        """Make every controller once, and ask every policy that sees the future whether it can.

        Raises:
            ConfigError: a controller does not take its options or its fleet, or a future is not known.
        """
        for cell in self.cells:
            make_controller(cell)
            check_oracle(cell, self.config.seed_list[0])


def make_plan(config: CompareConfig) -> Plan:
    """Return the plan of a comparison; names and files are looked up here and nowhere else.

    Raises:
        ConfigError, UnknownNameError: a preset, file or plug-in does not exist, or two cells carry the same labels.
    """
    pairs = [_known_of(pair, config) for pair in config.pairs]
    cells: list[Cell] = []
    skipped: list[str] = []
    files: set[Path] = set()
    for workload, clusters in config.grid:
        source = resolve_workload(workload.use)
        try:
            data = _data_files(source)
        except WorkloadError as error:
            if not workload.optional:
                raise
            skipped.append(f"{workload.label} is left out: {error}")
            continue
        for cluster in clusters:
            fleet, backend = resolve_cluster(cluster.use), cluster.backend or config.backend
            step_costs(fleet)
            table("backends").load(backend)
            wanted = [known for known in pairs if backend != SIMULATED or not known["live_only"]]
            if wanted:
                _check_fleet(config, cluster.label, fleet, backend)
            where = {"workload": workload.label, "source": source, "cluster": cluster.label, "fleet": fleet}
            made = [Cell(**where, backend=backend, **known["cell"]) for known in wanted]
            files.update(*(data for _ in made), *map(_model_files, made))
            cells += made
    if not cells:
        raise ConfigError(f"every workload is left out: {'; '.join(skipped)}")
    _check_cells(cells)
    return Plan(config, tuple(cells), tuple(skipped), tuple(sorted(files)))


def _known_of(pair: Any, config: CompareConfig) -> dict[str, Any]:
    """Return what a pair of the grid gives to its cells, and whether its router needs real servers."""
    router = pair.router
    rule, policy = table("routing").load(router.use), table("eviction").load(pair.eviction)
    if policy.oracle and not config.bounds:
        raise ConfigError(f"eviction policy {pair.eviction!r} sees the future; set bounds: true to allow that")
    cell = {
        "routing": router.label,
        "controller": router.use,
        "options": router.options,
        "eviction": pair.eviction,
        "published": pair.published,
        "charge_decision_time": config.charge_decision_time,
        "signals": config.signals,
        "bounds": config.bounds,
        "concentrates": getattr(rule, "concentrates", ""),
        "oracle": policy.oracle,
    }
    return {"cell": cell, "live_only": getattr(rule, "live_only", False)}


def _data_files(source: WorkloadSource) -> list[Path]:
    """Return the files that `source` reads: those named by its fields `path` and `tokenizer`.

    Raises:
        WorkloadError: one is absent.
    """
    return [locate(name) for field in ("path", "tokenizer") if (name := getattr(source, field, None))]


def _model_files(cell: Cell) -> list[Path]:
    """Return the files of a learned router and a learned eviction policy: a changed model is another one."""
    router = cell.controller if cell.controller.endswith(".zip") else cell.options.get("path")
    given = (router, cell.eviction if cell.eviction.endswith(".json") else None)
    return [Path(name) for name in given if name and Path(name).is_file()]


def _check_fleet(config: CompareConfig, cluster: str, fleet: ClusterConfig, backend: str) -> None:
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


def _check_cells(cells: Iterable[Cell]) -> None:
    seen: set[tuple[str, ...]] = set()
    for cell in cells:
        if cell.labels in seen:
            raise ConfigError(f"two cells are called {' / '.join(cell.labels)}; give one of them a name of its own")
        seen.add(cell.labels)
        check_eviction(cell.fleet.engines, cell.eviction)
    grids = {(cell.workload, cell.cluster) for cell in cells}
    if len(grids) > 1 and any(cell.published for cell in cells):
        raise ConfigError(f"published values need a grid of one workload and one cluster, got {len(grids)}")
