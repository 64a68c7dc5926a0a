"""Shows measured competitive ratios: tables for the terminal; theory.json and theory.svg in a folder."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from xml.etree.ElementTree import Element

from rich.console import Console

from kvgym.errors import ResultsError
from kvgym.harness.compare.store import write_text
from kvgym.harness.report.console import print_table, say
from kvgym.harness.report.drawing.figures import Curve, growth
from kvgym.harness.report.drawing.pictures import picture
from kvgym.theory.ratios import measure

FILES = ("theory.json", "theory.svg")
PLOTTED = ("cyclic star", "random star", "hot sets", "unbalanced")


def measure_into(out: Path | None) -> dict[str, Any]:
    """Measure; with `out` write the files there; return the results.

    Raises:
        ResultsError: the folder or a file in it cannot be written (before anything is measured).
    """
    if out is not None:
        _claim(out)
    results = measure()
    if out is not None:
        write_text(out / "theory.json", json.dumps(results, indent=1) + "\n")
        write_text(out / "theory.svg", picture(plots(results), columns=2))
    return results


def print_ratios(console: Console, results: dict[str, Any]) -> None:
    """Print one table per instance: a row per n (or batch), a column per policy, loads / optimal loads."""
    for name in dict.fromkeys(row["instance"] for row in results["ratios"]):
        rows = [row for row in results["ratios"] if row["instance"] == name]
        key = "batch" if name.startswith("batches") else "n"
        policies = list(dict.fromkeys(row["policy"] for row in rows))
        lines = []
        for value in dict.fromkeys(row[key] for row in rows):
            cells = {row["policy"]: row for row in rows if row[key] == value}
            lines.append([str(value), *(_cell(cells[policy]) for policy in policies)])
        print_table(console, [key, *policies], lines, title=name)
        say(console, "")
    for policy, fit in results["fits"].items():
        law = f"{fit['offset']:.3f} + {fit['slope']:.3f} {'ln n' if policy == 'rlt' else 'n'}"
        say(console, f"{policy}, cyclic star: {law}, R^2 {fit['r_squared']:.4f}")
    say(console, "loads / loads of the offline optimum, mean over seeds +- 95 % interval")


def plots(results: dict[str, Any]) -> list[Element]:
    """Return a plot of the ratio against n for each of the four instances."""
    made = []
    for name in PLOTTED:
        rows = [row for row in results["ratios"] if row["instance"] == name]
        curves = []
        for policy in dict.fromkeys(row["policy"] for row in rows):
            own = [row for row in rows if row["policy"] == policy]
            points = [(float(row["n"]), row["ratio"], row["low"], row["high"]) for row in own]
            curves.append(Curve(policy, points))
        made.append(growth(f"{name}: loads / optimal loads", "n = B - L + 1", curves))
    return made


def _cell(row: dict[str, Any]) -> str:
    if row["ratio"] is None:
        return "unbounded"
    return f"{row['ratio']:.2f} +- {row['high'] - row['ratio']:.2f}"


def _claim(out: Path) -> None:
    """Make the folder and see that the files can be written, without changing one that is there."""
    file = out
    try:
        out.mkdir(parents=True, exist_ok=True)
        for file in (out / name for name in FILES):
            new = not file.exists()
            file.open("ab").close()
            if new:
                file.unlink()
    except OSError as error:
        raise ResultsError(f"cannot write {file}: {error.strerror}") from error
