"""Runs one cell with one seed: a controller routes a workload over a simulated fleet until it has drained."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from kvgym.backends.base import Backend
from kvgym.backends.simulated import SimulatedBackend
from kvgym.config import contracts
from kvgym.errors import ConfigError, KVGymError
from kvgym.harness.compare.cell import SIMULATED, Cell
from kvgym.harness.compare.charge import DecisionClock
from kvgym.harness.compare.router_group import make_routers
from kvgym.harness.measure.clients import seen_by_client
from kvgym.harness.measure.samples import LoadSampler, Samples
from kvgym.harness.measure.waterfall import Course, Served, waterfall
from kvgym.types import DONE, Decision
from kvgym.workloads.base import Workload, WorkloadSource


@dataclass(frozen=True)
class RunResult:
    """What one run leaves behind.

    Attributes:
        records: RECORD rows in order of completion, shape (requests,).
        samples: load of the workers over the run.
        totals: the backend's `stats()`; of a simulated fleet with ``capped``, ``capped_tokens`` and ``waterfall``, and
            with ``hit_bound_tokens`` if the cell asks for bounds.
        notes: the workload's facts (source, what was dropped).
        decisions: number of routing decisions.
        wall_s: wall time of the episode without the generation of the workload.
        decision_s: wall time spent in the controller's `act`.
    """

    records: np.ndarray
    samples: Samples
    totals: dict[str, Any]
    notes: dict[str, Any]
    decisions: int
    wall_s: float
    decision_s: float

    @property
    def facts(self) -> dict[str, Any]:
        """What is kept of the run beside its records and samples, as plain data."""
        timing = {"wall_s": self.wall_s, "decision_s": self.decision_s, "decisions": self.decisions}
        return {"totals": self.totals, "notes": self.notes, "timing": timing}


Watcher = Callable[[Backend, Decision, int], None]
"""Called after each route with the backend, what was decided and for which worker."""


def run(
    cell: Cell, seed: int, watcher: Watcher | None = None, controller: Any = None, journal: Path | None = None
) -> RunResult:
    """Run `cell` with `seed`.

    The seed alone determines workload, arrivals and engine, so every controller of a comparison meets the same
    episode. RECORD.predicted_s is what the controller's `predicted_s` said at its choice (see `kvgym.control`).

    Args:
        cell: what to run.
        seed: of the episode.
        watcher: may look on.
        controller: routes in place of a new one made by the cell's name.
        journal: file to which a live run appends each ended request at once.
    """
    workload = _generate(_Key(cell.source), seed, cell.fleet.page_size)
    make = (lambda: make_controller(cell)) if controller is None else (lambda: controller)
    controller = make_routers(make, cell.signals.routers)
    if cell.backend == SIMULATED:
        simulated = SimulatedBackend(workload, cell.fleet, cell.eviction, seed, cell.signals, oracle=cell.bounds)
        return _play(cell, seed, workload, controller, simulated, watcher)
    from kvgym.harness.compare.live_episode import open_live

    with open_live(cell, seed, workload, controller, journal) as backend:
        return _play(cell, seed, workload, controller, backend, watcher)


def _play(
    cell: Cell, seed: int, workload: Workload, controller: Any, backend: Backend, watcher: Watcher | None
) -> RunResult:
    clock, charged = time.perf_counter, DecisionClock(cell.charge_decision_time)
    predicted_s = np.full(len(workload.requests), -1.0)
    _ask(cell, controller.reset, backend.spec, seed)
    sampler = LoadSampler(cell.fleet.workers)
    course = Course(len(workload.requests)) if isinstance(backend, SimulatedBackend) else None
    decisions, decision_s, start_s = 0, 0.0, clock()
    while (decision := backend.run_to_decision()) is not None:
        finished = backend.completions()
        if len(finished):
            _ask(cell, controller.observe, finished)
        if decisions % sampler.stride == 0:
            sampler.add(decision.time_s, backend.load())
        before_s = clock()
        worker = _ask(cell, controller.act, decision)
        took_s = clock() - before_s
        decision_s += took_s
        decisions += 1
        predicted_s[decision.request] = _ask(cell, _prediction, controller)
        if course is not None and isinstance(backend, SimulatedBackend):
            course.note(decision, worker, backend.held(decision))
        backend.apply(worker, charged.delay_s(decision.router, decision.time_s, took_s))
        if watcher is not None:
            watcher(backend, decision, worker)
    wall_s = clock() - start_s
    samples = sampler.finish(backend.progress().time_s, backend.load())
    records = seen_by_client(backend.records(), cell.fleet.late_text_share if cell.backend == SIMULATED else 0.0)
    records["predicted_s"] = predicted_s[records["request"]]
    totals = backend.stats()
    if course is not None and isinstance(backend, SimulatedBackend):
        totals |= _capped(workload, records)
        served = Served(cell.fleet.page_size, cell.fleet.schedule, backend.delay_s(records))
        totals["waterfall"] = waterfall(_in_tokens(cell.source, seed, workload), records, course, served)
    if cell.bounds:
        from kvgym.harness.measure.bounds import hit_bound

        totals["hit_bound_tokens"] = hit_bound(workload, records, cell.fleet.capacities)
    return RunResult(records, samples, totals, workload.notes, decisions, wall_s, decision_s)


def _capped(workload: Workload, records: np.ndarray) -> dict[str, int]:
    """Return how many answers ended at the KV capacity, and how many tokens they lack of what was asked for."""
    done = records[records["status"] == DONE]
    asked = workload.requests[done["request"]]
    lacking = np.minimum(asked["output_tokens"], asked["max_new_tokens"]) - done["output_tokens"]
    return {"capped": int((lacking > 0).sum()), "capped_tokens": int(np.maximum(lacking, 0).sum())}


def _ask(cell: Cell, method: Callable[..., Any], *arguments: Any) -> Any:
    """Return what a method of the controller returns.

    Raises:
        ConfigError: it has raised something of its own, which is the cause.
    """
    try:
        return method(*arguments)
    except KVGymError:
        raise
    except Exception as error:
        raise ConfigError(contracts.controller_failure(cell.controller, method.__name__.lstrip("_"), error)) from error


def _prediction(controller: Any) -> float:
    return float(getattr(controller, "predicted_s", -1.0))


def make_controller(cell: Cell) -> Any:
    """Return a new routing controller for `cell`; errors as for `kvgym.config.contracts.make_controller`."""
    return contracts.make_controller(cell.controller, cell.options, cell.fleet.workers)


def check_oracle(cell: Cell, seed: int) -> None:
    """Raise a `ConfigError` if the cell's eviction policy sees the future and that of its workload is not known."""
    if cell.oracle:
        from kvgym.engine.future import future_uses

        if cell.signals.routers > 1:  # each takes its own time to decide, so requests overtake each other
            raise ConfigError(f"an eviction policy that sees the future needs one router, got {cell.signals.routers}")

        workload, fleet = _generate(_Key(cell.source), seed, cell.fleet.page_size), cell.fleet
        delays = np.array(fleet.network_delays_s) if fleet.network_delays_s else None
        future_uses(workload, np.array(fleet.capacities), None, delays, allowed=cell.bounds)


@dataclass(frozen=True)
class _Key:
    """Makes any source hashable for the cache: sources with map or list fields are not."""

    source: WorkloadSource

    def __hash__(self) -> int:
        return hash(repr(self.source))


@functools.lru_cache(maxsize=1)
def _generate(key: _Key, seed: int, page_size: int) -> Workload:
    # Neighbouring cells differ in the controller only; compiling a large trace once for all of them is what counts.
    return key.source.generate(seed, page_size)


def _in_tokens(source: WorkloadSource, seed: int, workload: Workload) -> Workload:
    """Return the same workload with its forest at page size 1: what prompts share, to the token."""
    return workload if workload.page_size == 1 else _generate_tokens(_Key(source), seed)


@functools.lru_cache(maxsize=1)
def _generate_tokens(key: _Key, seed: int) -> Workload:
    return key.source.generate(seed, 1)
