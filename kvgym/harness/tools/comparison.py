"""Runs a grid of cells over paired seeds, in this process or in several, and writes the results as they come."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import as_completed
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from kvgym.backends.batch import cpus
from kvgym.harness.compare.cell import SIMULATED
from kvgym.harness.compare.grid import load_compare
from kvgym.harness.compare.manifest import make_manifest
from kvgym.harness.compare.plan import Task, make_plan
from kvgym.harness.compare.results import read_results
from kvgym.harness.compare.run import run
from kvgym.harness.compare.store import Store
from kvgym.harness.compare.summary import Summary
from kvgym.harness.report.page import write_page
from kvgym.harness.report.tables import write_markdown, write_tables
from kvgym.harness.tools.processes import process_pool
from kvgym.interrupts import ignored


@dataclass(frozen=True)
class Comparison:
    """A finished comparison: where it lies, what came out, and whether a rerun gives the same."""

    folder: Path
    summary: Summary
    deterministic: bool = True


def compare(
    data: Mapping[str, Any], out: str | Path | None = None, jobs: int | None = None, console: Console | None = None
) -> Comparison:
    """Run the comparison that `data` describes (see `CompareConfig`) and write its folder.

    Runs that the folder holds already are not run again.

    Args:
        data: plain configuration.
        out: output folder; none: ``results/<name>-<identity>``.
        jobs: processes; none: as many as there are CPUs. The results do not depend on it.
        console: where progress and messages go; none: nowhere.

    Raises:
        KVGymError: the configuration is wrong (nothing is written), a run fails, or the folder cannot be used.
    """
    console = console or Console(quiet=True)
    plan = make_plan(load_compare(data))
    for message in plan.skipped:
        console.print(message, style="yellow", highlight=False, soft_wrap=True)
    plan.check()
    manifest = make_manifest(plan)
    folder = Path(out) if out is not None else Path("results") / f"{plan.config.name}-{manifest['identity']}"
    tasks = plan.tasks
    with Store.claim(folder, manifest) as store:
        _run_all([task for task in tasks if not store.has(*task)], len(tasks), store, jobs or cpus(), console)
        results = read_results(folder)
        write_tables(results)
        write_markdown(results)
        write_page(results)
    return Comparison(folder, results.summary, plan.config.deterministic)


def _run_all(tasks: list[Task], total: int, store: Store, jobs: int, console: Console) -> None:
    if not tasks:
        return
    live = [task for task in tasks if task[0].backend != SIMULATED]
    tasks = [task for task in tasks if task[0].backend == SIMULATED]
    with _progress(console, total, total - len(tasks) - len(live)) as advance:
        _run_live(live, store, advance)
        if not tasks:
            return
        if jobs == 1 or len(tasks) == 1:
            for task in tasks:
                _run_task(task, store)
                advance()
            return
        with process_pool(min(jobs, len(tasks))) as pool:
            with ignored():  # and the workers leave it to this process
                futures = [pool.submit(_run_task, task, store) for task in tasks]
            for future in as_completed(futures):
                future.result()
                advance()


def _run_live(tasks: list[Task], store: Store, advance: Callable[[], None]) -> None:
    """Run live tasks one after another in this process, which owns the servers."""
    if not tasks:
        return
    from kvgym.harness.compare.live_episode import by_servers, release

    try:
        for task in by_servers(tasks):
            _run_task(task, store)
            advance()
    finally:
        release()


def _run_task(task: Task, store: Store) -> None:
    cell, seed = task
    journal = store.journal(cell, seed) if cell.backend != SIMULATED else None
    result = run(cell, seed, journal=journal)
    store.save(cell, seed, result.records, result.samples, result.facts)


@contextmanager
def _progress(console: Console, total: int, done: int) -> Iterator[Any]:
    columns = (TextColumn("runs"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console) as bar:
        task = bar.add_task("runs", total=total, completed=done)
        yield lambda: bar.advance(task)
