"""Shows a fit, and writes it: a cluster file with the fitted cost, its draws, and a picture of what is left over."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import yaml
from rich.console import Console

from kvgym.calibration.fitting import NAMES, Fit, predicted
from kvgym.calibration.observations import NAMES as PHASES
from kvgym.harness.report.console import print_table, say
from kvgym.harness.report.drawing.figures import scatter
from kvgym.harness.report.drawing.pictures import picture

_TITLES = {"prefill": "prefill steps", "first_token": "times to first token", "decode": "times per token"}


def phase_errors(fit: Fit, rows: np.ndarray) -> list[dict[str, Any]]:
    """Return for each phase how many observations there are, and the median and 90th percentile of |error|."""
    found = []
    for number, name in enumerate(PHASES):
        off = np.abs(fit.relative[rows["phase"] == number])
        if len(off):
            found.append({"phase": name, "observations": len(off), "median_error": float(np.median(off)),
                          "p90_error": float(np.percentile(off, 90))})  # fmt: skip
    return found


def extrapolated(fit: Fit, cluster: Mapping[str, Any]) -> list[str]:
    """Return warnings: what the cluster can ask of a step that no observation came near."""
    asked = {
        "computed tokens of a step": cluster.get("chunk_tokens", 8192),
        "batch": cluster.get("max_running", 2048),
    }
    return [
        f"no observation beyond {fit.most[name]:,.0f} {name}; the fleet may have {value:,}, which is extrapolated"
        for name, value in asked.items()
        if value > 2 * fit.most[name]
    ]


def plain(fit: Fit, rows: np.ndarray) -> dict[str, Any]:
    """Return the fit as plain data, for ``--json``."""
    low, high = np.percentile(fit.draws, (2.5, 97.5), axis=0)
    values = {
        name: {"value": _short(fit.values[at]), "low": _short(low[at]), "high": _short(high[at])}
        for at, name in enumerate(NAMES)
    }
    return {"coefficients": values, "errors": phase_errors(fit, rows), "fitted_up_to": fit.most}


def print_fit(console: Console, fit: Fit, rows: np.ndarray, notes: Sequence[str]) -> None:
    """Print the coefficients with their intervals, and how well they meet the observations."""
    say(console, *notes)
    cells = [
        [name, f"{found['value']:.6g}", f"{found['low']:.6g}", f"{found['high']:.6g}"]
        for name, found in plain(fit, rows)["coefficients"].items()
    ]
    print_table(console, ["coefficient", "value", "2.5 %", "97.5 %"], cells)
    errors = [
        [_TITLES[row["phase"]], str(row["observations"]), f"{row['median_error']:.1%}", f"{row['p90_error']:.1%}"]
        for row in phase_errors(fit, rows)
    ]
    print_table(console, ["fitted to", "n", "median |error|", "90 % of |error|"], errors)


def write_cluster(path: Path, cluster: Mapping[str, Any], fit: Fit, source: str) -> list[Path]:
    """Write a cluster whose cost is the fit, and beside it the fit's draws; return both paths."""
    cost = {name: _short(value) for name, value in zip(NAMES, fit.values, strict=True)}
    reach = ", ".join(f"{name} up to {value:,.0f}" for name, value in fit.most.items())
    head = f"# Fitted to {source}.\n# Observed: {reach}. Draws of the coefficients: {draws_path(path).name}.\n"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(head + yaml.safe_dump({**cluster, "cost": cost}, sort_keys=False), encoding="utf-8")
    drawn = [[_short(value) for value in row] for row in fit.draws]
    draws_path(path).write_text(json.dumps({"names": list(NAMES), "draws": drawn}) + "\n", encoding="utf-8")
    return [path, draws_path(path)]


def draws_path(cluster: Path) -> Path:
    """Return where the draws of a fitted cluster file lie."""
    return cluster.with_suffix(".draws.json")


def write_picture(path: Path, fit: Fit, rows: np.ndarray) -> Path:
    """Write an SVG of the errors over what was observed."""
    groups = []
    for number, name in enumerate(PHASES):
        own = rows["phase"] == number
        if own.any():
            groups.append((name, rows["ms"][own], predicted(rows[own], fit.values) / rows["ms"][own] - 1.0))
    path.write_text(picture([scatter("fitted over observed, less one", "ms", groups)]), encoding="utf-8")
    return path


def _short(value: float) -> float:
    return float(f"{value:.6g}")
