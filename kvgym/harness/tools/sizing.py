"""Sizes fleets for `kvgym plan`: workers that keep an objective with each policy, and the load that a fleet keeps."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from concurrent.futures import Executor, as_completed
from contextlib import contextmanager
from itertools import groupby
from typing import Any

from rich.console import Console

from kvgym.backends.batch import cpus
from kvgym.errors import ConfigError
from kvgym.harness.compare.cell import SIMULATED, Cell
from kvgym.harness.compare.grid import CompareConfig, load_compare
from kvgym.harness.compare.plan import make_plan
from kvgym.harness.compare.run import make_controller, run
from kvgym.harness.measure.bisection import Estimate, Values, factor, load_kept, workers_needed
from kvgym.harness.measure.sized import METRICS, Key, Objective, Sized, Sizing
from kvgym.harness.measure.statistics import paired_difference, spread, summarize
from kvgym.harness.tools.processes import process_pool
from kvgym.interrupts import ignored
from kvgym.workloads.building.tempo import Tempo, request_rate

Point = tuple[int, int]
"""Workers, and steps of 2 % less load."""
Searches = dict[tuple[Key, str], tuple[Callable[[int], Point], Generator[int, Values, Estimate]]]


def size_fleets(
    data: Mapping[str, Any],
    share: float = 0.95,
    most: int = 64,
    load: bool = True,
    jobs: int | None = None,
    console: Console | None = None,
) -> Sizing:
    """Return how many workers each pair of a comparison needs on each workload and kind of worker.

    Args:
        data: a comparison (see `CompareConfig`) with a service level objective; its fleets say what a worker is.
        share: of the requests that must keep the objective.
        most: largest fleet that is tried.
        load: also find the highest load that the fleet as configured keeps.
        jobs: processes; none: one per CPU. The results do not depend on it.
        console: where it is said how far it has come.

    Raises:
        ConfigError: there is no objective, or a fleet or a workload cannot be scaled.
    """
    config = load_compare(data)
    objective = _objective(config, share, most)
    plan = make_plan(config)
    cells = {cell.labels: cell for cell in plan.cells}
    for cell in cells.values():
        _check(cell)
    rates = _rates(cells.values(), objective) if load else {}
    searches: Searches = {}
    for key, cell in cells.items():
        own = cell.fleet.workers
        count = len(objective.seeds)
        searches[key, "workers"] = (lambda n: (n, 0)), workers_needed(share, count, own, most)
        if load:
            searches[key, "load"] = (lambda slower, own=own: (own, slower)), load_kept(share, count)  # type: ignore[misc]
    with _measuring(jobs or cpus(), console or Console(quiet=True)) as measure:
        book = _Book(cells, objective, measure)
        found = book.drive(searches)
    return Sizing(_ranked(cells, found, book, rates), objective, most, book.runs)


def _objective(config: CompareConfig, share: float, most: int) -> Objective:
    if config.slo is None:
        raise ConfigError("a plan needs an objective: slo: {latency_s: 5} in the comparison, or --set slo.latency_s=5")
    if not 0 < share <= 1:
        raise ConfigError(f"share must be above 0 and at most 1, got {share:g}")
    if not 1 <= most <= 100_000:
        raise ConfigError(f"most must be 1 to 100,000 workers, got {most}")
    if not config.deterministic:
        raise ConfigError("a plan repeats runs to the last bit: not with measured decision times or real servers")
    return Objective(config.slo, share, config.warmup_s, config.seed_list)


def _check(cell: Cell) -> None:
    """Refuse what has no meaning with another number of workers."""
    fleet, where = cell.fleet, f"{cell.workload} on {cell.cluster}"
    if cell.backend != SIMULATED:
        raise ConfigError(f"{where}: real servers can't be multiplied; plan with a simulated fleet")
    several = [name for name in ("capacity_tokens", "speed", "engine") if isinstance(getattr(fleet, name), tuple)]
    regions = fleet.network_s.values() if isinstance(fleet.network_s, dict) else [fleet.network_s]
    several += ["network_s"] * any(isinstance(value, tuple) for value in regions)
    several += ["schedule"] * bool(fleet.schedule)
    if several:
        raise ConfigError(f"{where}: a plan changes the number of workers, so {several[0]} can't list one for each")
    make_controller(cell)
    if cell.oracle:
        raise ConfigError(f"{where}: {cell.eviction} sees the future, no fleet can run it")


def _rates(cells: Iterable[Cell], objective: Objective) -> dict[str, float]:
    """Return the mean rate of each workload over the seeds, requests per second.

    Raises:
        ConfigError: one has no rate.
    """
    found: dict[str, float] = {}
    for cell in cells:
        if cell.workload in found:
            continue
        rates = [request_rate(cell.source.generate(seed, cell.fleet.page_size)) for seed in objective.seeds]
        mean = spread(rates)[0]
        if mean is None:
            raise ConfigError(
                f"{cell.workload} has no rate: it is a closed loop, or all comes at once; give it a rate, or leave the "
                "load out (--no-load)"
            )
        found[cell.workload] = mean
    return found


class _Book:
    """Every point that was run, once: goodput and a few metrics of each seed.

    Args:
        cells: labels -> cell as configured.
        objective: what has to be kept.
        measure: runs tasks, in any order.
    """

    def __init__(self, cells: Mapping[Key, Cell], objective: Objective, measure: _Measure) -> None:
        self._cells, self._objective, self._measure = cells, objective, measure
        self._known: dict[tuple[Key, Point], list[dict[str, float | None]]] = {}
        self.runs = 0

    def drive(self, searches: Searches) -> dict[tuple[Key, str], Estimate]:
        """Answer all searches, round by round, so that the runs of a round can share processes and workloads."""
        found: dict[tuple[Key, str], Estimate] = {}
        waiting = {name: next(search) for name, (_, search) in searches.items()}
        while waiting:
            self._run({(name[0], searches[name][0](asked)) for name, asked in waiting.items()})
            for name, asked in list(waiting.items()):
                point, search = searches[name]
                try:
                    waiting[name] = search.send(self.shares(name[0], point(asked)))
                except StopIteration as end:
                    found[name] = end.value
                    del waiting[name]
        return found

    def shares(self, key: Key, point: Point) -> list[float]:
        """Return the share of the requests that kept the objective, one value per seed."""
        return [row["goodput_share"] or 0.0 for row in self._known[key, point]]

    def means(self, key: Key, point: Point) -> dict[str, float | None]:
        """Return the means of `METRICS` over seeds."""
        return {name: spread([row[name] for row in self._known[key, point]])[0] for name in METRICS}

    def _run(self, wanted: set[tuple[Key, Point]]) -> None:
        """Run what is not known yet; cells that share a workload lie together, so that it is generated once."""
        missing = sorted((pair for pair in wanted if pair not in self._known), key=lambda pair: (pair[0], pair[1]))
        groups: dict[tuple[str, int, int], list[tuple[Key, Point]]] = {}
        for key, point in missing:
            groups.setdefault((key[0], self._cells[key].fleet.page_size, point[1]), []).append((key, point))
        tasks = [
            (seed, [(pair, _scaled(self._cells[pair[0]], pair[1])) for pair in group], self._objective)
            for group in groups.values()
            for seed in self._objective.seeds
        ]
        results: dict[tuple[Key, Point], dict[int, dict[str, float | None]]] = {}
        for seed, pair, metrics in self._measure(tasks):
            results.setdefault(pair, {})[seed] = metrics
            self.runs += 1
        for pair, by_seed in results.items():
            self._known[pair] = [by_seed[seed] for seed in self._objective.seeds]


_Task = tuple[int, list[tuple[tuple[Key, Point], Cell]], Objective]
_Row = tuple[int, tuple[Key, Point], dict[str, float | None]]
_Measure = Callable[[list[_Task]], Iterator[_Row]]


def _scaled(cell: Cell, point: Point) -> Cell:
    workers, slower = point
    fleet = dataclasses.replace(cell.fleet, workers=workers)
    times = factor(slower)
    assert times is not None
    return dataclasses.replace(cell, fleet=fleet, source=Tempo(cell.source, times) if slower else cell.source)


def _run_task(task: _Task) -> list[_Row]:
    seed, pairs, objective = task
    rows = []
    for pair, cell in pairs:
        result = run(cell, seed)
        metrics = summarize(result.records, result.totals, objective.warmup_s, objective.slo)
        rows.append((seed, pair, {name: metrics[name] for name in METRICS}))
    return rows


@contextmanager
def _measuring(jobs: int, console: Console) -> Iterator[_Measure]:
    """Give what runs tasks, in this process or in several."""
    with console.status("planning") as status:
        done = 0

        def count(rows: list[_Row]) -> Iterator[_Row]:
            nonlocal done
            done += len(rows)
            status.update(f"planning: {done} runs")
            yield from rows

        if jobs == 1:
            yield lambda tasks: (row for task in tasks for row in count(_run_task(task)))
            return
        with process_pool(jobs) as pool:
            yield lambda tasks: (row for rows in _spread_out(pool, tasks) for row in count(rows))


def _spread_out(pool: Executor, tasks: list[_Task]) -> Iterator[list[_Row]]:
    with ignored():
        futures = [pool.submit(_run_task, task) for task in tasks]
    for future in as_completed(futures):
        yield future.result()


def _ranked(
    cells: Mapping[Key, Cell], found: Mapping[tuple[Key, str], Estimate], book: _Book, rates: Mapping[str, float]
) -> list[Sized]:
    """Return what was found, per workload and fleet the fewest workers first, then the highest load."""
    result: list[Sized] = []
    for _, group in groupby(cells, key=lambda key: key[:2]):
        keys = list(group)
        keys.sort(key=lambda key: _rank(found[key, "workers"], found.get((key, "load"))))
        best = found[keys[0], "workers"]
        for i, key in enumerate(keys):
            own, cell = found[key, "workers"], cells[key]
            extra = None if i == 0 else _extra(own, best)
            at = book.means(key, (int(own.value), 0)) if own.value else {}
            rps = _rps(found[key, "load"], rates[cell.workload]) if (key, "load") in found else None
            result.append(Sized(key, own, extra, at, cell.fleet.workers, rps))
    return result


def _rank(workers: Estimate, load: Estimate | None) -> tuple[float, ...]:
    known = [value for value in workers.each if value is not None]
    each = sum(known) / len(known) if known and len(known) == len(workers.each) else float("inf")
    return (workers.value or float("inf"), each, -(load.value or 0.0) if load else 0.0)


def _extra(own: Estimate, best: Estimate) -> tuple[float | None, float | None, float | None] | None:
    """Return the workers that a pair needs more than the best one, seed by seed."""
    extra = paired_difference(own.each, best.each)
    return None if extra[0] is None else extra


def _rps(load: Estimate, rate_rps: float) -> tuple[float | None, float | None, float | None]:
    """Return the load in requests per second; the estimate is a factor on `rate_rps`."""
    low, value, high = (None if x is None else x * rate_rps for x in (load.low, load.value, load.high))
    return value, low, high
