"""Shows what a validation has found: tables for the terminal, and one Markdown page that regenerates byte for byte."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console

from kvgym.harness.report.console import print_table, say
from kvgym.validation import RUNS
from kvgym.validation.base import Figure, MeasuredRun, rank_agreement, wrong_winners

HEADER = ("run", "figure", "n", "median error", "median absolute error", "largest absolute error", "rank agreement")


def validate(names: Iterable[str] = ()) -> dict[str, list[Figure]]:
    """Replay the measured runs of these names (none: all); return name -> figures.

    Raises:
        UnknownNameError: there is no such run.
        WorkloadError: a data file is absent.
    """
    return {name: RUNS.load(name).replay() for name in (names or list(RUNS))}


def summary(found: dict[str, list[Figure]]) -> list[dict[str, Any]]:
    """Return one row per run and figure: errors, and where arms or loads can be ranked how well the order is met."""
    rows = []
    for run, figures in found.items():
        for name in dict.fromkeys(figure.name for figure in figures):
            own = [figure for figure in figures if figure.name == name]
            errors = np.array([figure.error for figure in own])
            ranked = len({(figure.arm, figure.load) for figure in own if figure.load}) > 2
            rows.append(
                {
                    "run": run,
                    "figure": name,
                    "n": len(own),
                    "median_error": float(np.median(errors)),
                    "median_absolute_error": float(np.median(np.abs(errors))),
                    "largest_absolute_error": float(np.abs(errors).max()),
                    "rank_agreement": rank_agreement(own, name) if ranked else None,
                    "wrong_winners": wrong_winners(own, name),
                }
            )
    return rows


def _cells(row: dict[str, Any]) -> list[str]:
    errors = [f"{100 * row[key]:+.1f} %" for key in ("median_error", "median_absolute_error", "largest_absolute_error")]
    tau = "" if row["rank_agreement"] is None else f"{row['rank_agreement']:.2f}"
    return [row["run"], row["figure"], str(row["n"]), errors[0], errors[1][1:], errors[2][1:], tau]


def print_validation(console: Console, found: dict[str, list[Figure]]) -> None:
    """Print the summary, and which arms the simulator ranks otherwise than the measurement."""
    rows = summary(found)
    print_table(console, HEADER, [_cells(row) for row in rows])
    for row in rows:
        for pair in row["wrong_winners"]:
            say(
                console, f"{row['run']}: {row['figure']}: the simulator has the other winner for {pair}", style="yellow"
            )


def markdown(found: dict[str, list[Figure]]) -> str:
    """Return the page: the summary, and for each run what was measured, what was assumed, and every figure."""
    lines = ["# Validation", "", "Made by `kvgym validate --out docs/validation.md` from the measured runs in the data "
             "folder. Errors are simulated over measured, less one. No constant was fitted to a run that it is judged "
             "on, unless the run says so.", ""]  # fmt: skip
    lines += _table(HEADER, map(_cells, summary(found)))
    for name, figures in found.items():
        run: MeasuredRun = RUNS.load(name)
        lines += [
            "",
            f"## {name}",
            "",
            f"{run.title}. Source: {run.source}.",
            "",
            f"Fitted to it: {run.fitted or 'nothing'}.",
        ]
        lines += ["", *(f"- {sentence}" for sentence in run.assumed), ""]
        rows = [
            (
                f.arm,
                f"{f.load:g}" if f.load else "",
                f.name,
                f"{f.measured:.4g}",
                f"{f.simulated:.4g}",
                f"{f.error:+.1%}",
            )
            for f in figures
        ]
        lines += _table(("arm", "requests/s", "figure", "measured", "simulated", "error"), rows)
        wrong = [pair for row in summary({name: figures}) for pair in row["wrong_winners"]]
        ranked = any(figure.load for figure in figures)
        if ranked:
            lines += ["", "Winners that the simulator swaps where the measurement differs by more than 20 %: "
                      + ("; ".join(wrong) if wrong else "none") + "."]  # fmt: skip
    return "\n".join(lines) + "\n"


def _table(header: Iterable[str], rows: Iterable[Iterable[str]]) -> list[str]:
    head = list(header)
    return [f"| {' | '.join(cells)} |" for cells in (head, ["---"] * len(head), *map(list, rows))]


def write_page(path: Path, found: dict[str, list[Figure]]) -> None:
    """Write the Markdown page."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(markdown(found), encoding="utf-8")
