"""Says for `kvgym explain` where prompt tokens went: in one run, or in a comparison's runs (older ones run again)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from rich.console import Console

from kvgym.errors import ResultsError, UnknownNameError, did_you_mean
from kvgym.harness.compare.cell import SIMULATED, Cell, StoredCell
from kvgym.harness.compare.plan import make_plan
from kvgym.harness.compare.results import Results, read_results
from kvgym.harness.compare.run import run
from kvgym.harness.measure.waterfall import PARTS, mean_shares
from kvgym.harness.report.console import say
from kvgym.harness.report.explained import HINT, Explained, print_explained, print_waterfall
from kvgym.harness.tools.single import single_cell


class Reasons(NamedTuple):
    """Where the prompt tokens of a cell went: seed -> tokens of `PARTS` and, if there are any, ``believed``."""

    labels: tuple[str, str, str, str]
    seeds: Mapping[int, Mapping[str, int]]

    @property
    def plain(self) -> dict[str, Any]:
        """Labels, tokens of each part over all seeds, and their sum."""
        total = {name: sum(tokens.get(name, 0) for tokens in self.seeds.values()) for name in (*PARTS, "believed")}
        if not all("believed" in tokens for tokens in self.seeds.values()):
            del total["believed"]
        names = dict(zip(("workload", "cluster", "routing", "eviction"), self.labels, strict=True))
        return {
            **names,
            "seeds": list(self.seeds),
            "prompt_tokens": sum(total[name] for name in PARTS),
            "tokens": total,
        }


class Answer(NamedTuple):
    """What `kvgym explain` has found, and the pair that the others are compared with."""

    cells: list[Reasons]
    baseline: tuple[str, str]


def explain_run(
    workload: str, cluster: str, routing: str, eviction: str, seed: int, overrides: Iterable[str]
) -> Answer:
    """Return the reasons of one run, named and changed as for `kvgym run`.

    Raises:
        KVGymError: a name or a setting is not acceptable.
    """
    cell, _ = single_cell(workload, cluster, routing, eviction, overrides)
    return Answer([Reasons(cell.labels, {seed: run(cell, seed).totals["waterfall"]})], cell.labels[2:])


def explain_folder(folder: Path, name: str | None, console: Console) -> Answer:
    """Return the reasons of the finished runs of a comparison.

    Runs of an older kvgym say nothing; they are run again, and have to give the same records.

    Args:
        folder: the comparison's folder.
        name: labels of one cell, as in ``gsp_small/l40x4/lbgr/rlt``; none: all.
        console: where it is said that something is run again.

    Raises:
        KVGymError: the folder or the cell is not there, or the runs can't be repeated.
    """
    results = read_results(folder)
    known = {"/".join(cell.labels): cell for cell in results.cells}
    if name is not None and name not in known:
        hint = did_you_mean(name, known) or ";"
        raise UnknownNameError(f"{folder} has no cell {name!r}{hint} there are: {', '.join(known)}")
    wanted = [known[name]] if name is not None else results.cells
    again = _Again(results, console)
    found = [Reasons(cell.labels, again.reasons(cell)) for cell in wanted if _simulated(cell)]
    found = [reasons for reasons in found if reasons.seeds]
    if not found:
        raise ResultsError(f"{folder}: only runs in the simulator can be explained: what real caches held is not known")
    return Answer(found, results.summary.baseline)


def _simulated(cell: StoredCell) -> bool:
    return bool(cell.plain.get("backend", SIMULATED) == SIMULATED)


class _Again:
    """Reads what finished runs say, and runs again what does not say it."""

    def __init__(self, results: Results, console: Console) -> None:
        self._results, self._console = results, console
        self._cells: dict[tuple[str, ...], Cell] = {}

    def reasons(self, cell: StoredCell) -> dict[int, Mapping[str, int]]:
        """Return the reasons of each finished run of `cell`."""
        store, found = self._results.store, {}
        for seed in self._results.config.seed_list:
            if store.has(cell, seed):
                records, facts = store.load(cell, seed)
                found[seed] = facts["totals"].get("waterfall") or self._run(cell, seed, records)
        return found

    def _run(self, stored: StoredCell, seed: int, records: np.ndarray) -> Mapping[str, int]:
        if not self._cells:
            say(self._console, "runs of an older kvgym are run again to be explained")
            self._cells = {cell.labels: cell for cell in make_plan(self._results.config).cells}
        result = run(self._cells[stored.labels], seed)
        if result.records.tobytes() != records.tobytes():
            raise ResultsError(
                f"{' / '.join(stored.labels)} seed {seed}: run again, it gives other records than the folder holds, so "
                "code, data or plug-ins have changed; compare into a new folder and explain that"
            )
        return dict(result.totals["waterfall"])


def print_answer(console: Console, answer: Answer) -> None:
    """Print the waterfall of a single run, or a table per workload and fleet."""
    if len(answer.cells) == 1 and len(answer.cells[0].seeds) == 1:
        (reasons,) = answer.cells
        (seed,) = reasons.seeds
        workload, cluster, routing, eviction = reasons.labels
        say(console, f"{workload} on {cluster}: {routing} + {eviction}, seed {seed}", style="bold")
        print_waterfall(console, reasons.seeds[seed])
        return
    for (workload, cluster), group in groupby(answer.cells, key=lambda reasons: reasons.labels[:2]):
        rows = [Explained(each.labels[2:], mean_shares(list(each.seeds.values()))) for each in group]
        print_explained(console, f"{workload} on {cluster}", rows, answer.baseline)
    say(console, "", HINT)
