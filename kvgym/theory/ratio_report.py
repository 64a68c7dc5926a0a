"""Shows measured competitive ratios: tables for the terminal; theory.json, theory.svg and theory.png in a folder."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from kvgym.errors import MissingDependencyError, ResultsError
from kvgym.harness.compare.store import write_text
from kvgym.theory.ratios import measure

FILES = ("theory.json", "theory.svg", "theory.png")
PLOTTED = ("cyclic star", "random star", "hot sets", "unbalanced")


def main(json_output: bool, out: Path | None) -> None:
    """Measure; print tables or one JSON object; with `out` write the files there.

    Raises:
        MissingDependencyError: `out` is given and matplotlib is not installed (before anything is measured).
        ResultsError: the folder or a file in it cannot be written (before anything is measured).
    """
    if out is not None:
        _require_matplotlib()
        _claim(out)
    results = measure()
    if out is not None:
        write_text(out / "theory.json", json.dumps(results, indent=1) + "\n")
        plot(results, out)
    print(json.dumps(results) if json_output else text(results))


def text(results: dict[str, Any]) -> str:
    """Return one table per instance: a row per n (or batch), a column per policy, loads / optimal loads."""
    lines = []
    for name in dict.fromkeys(row["instance"] for row in results["ratios"]):
        rows = [row for row in results["ratios"] if row["instance"] == name]
        key = "batch" if name.startswith("batches") else "n"
        policies = list(dict.fromkeys(row["policy"] for row in rows))
        lines += ["", name, "".join(f"{head:>16}" for head in (key, *policies))]
        for value in dict.fromkeys(row[key] for row in rows):
            cells = {row["policy"]: row for row in rows if row[key] == value}
            lines.append(f"{value:>16}" + "".join(f"{_cell(cells[policy]):>16}" for policy in policies))
    lines.append("")
    for policy, fit in results["fits"].items():
        law = f"{fit['offset']:.3f} + {fit['slope']:.3f} {'ln n' if policy == 'rlt' else 'n'}"
        lines.append(f"{policy}, cyclic star: {law}, R^2 {fit['r_squared']:.4f}")
    return "\n".join([*lines, "loads / loads of the offline optimum, mean over seeds +- 95 % interval"])


def plot(results: dict[str, Any], folder: Path) -> None:
    """Draw ratio against n for the four instances to theory.svg and theory.png."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10, 8), layout="constrained")
    FigureCanvasAgg(figure)
    for axes, name in zip(figure.subplots(2, 2).flat, PLOTTED, strict=True):
        rows = [row for row in results["ratios"] if row["instance"] == name]
        for policy in dict.fromkeys(row["policy"] for row in rows):
            own = [row for row in rows if row["policy"] == policy]
            spread = [[row["ratio"] - row["low"] for row in own], [row["high"] - row["ratio"] for row in own]]
            axes.errorbar([row["n"] for row in own], [row["ratio"] for row in own], spread, marker=".", label=policy)
        axes.set(title=name, xlabel="n = B - L + 1", ylabel="loads / optimal loads", xscale="log", yscale="log")
        axes.legend()
    for kind in ("svg", "png"):
        figure.savefig(folder / f"theory.{kind}", dpi=120)


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


def _require_matplotlib() -> None:
    try:
        import matplotlib  # noqa: F401
    except ImportError as error:
        raise MissingDependencyError("plots need matplotlib: pip install 'kvgym[report]'") from error
