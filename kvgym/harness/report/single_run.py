"""Prints one run: who and what, times, the fleet as a whole, and each worker's share."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.console import Console

from kvgym.harness.report.console import print_table, say
from kvgym.harness.report.explained import print_waterfall

_TIMES = (("latency s", "latency_s", 1.0, ".3f"), ("TTFT s", "ttft_s", 1.0, ".3f"), ("TPOT ms", "tpot_s", 1e3, ".2f"))
_POINTS = ("mean", "p50", "p90", "p95", "p99")
_WHOLE = (
    ("hit rate %", "hit_rate", 100.0, ".2f"),
    ("throughput req/s", "throughput_rps", 1.0, ".2f"),
    ("makespan s", "makespan_s", 1.0, ".1f"),
    ("imbalance", "load_imbalance", 1.0, ".2f"),
    ("goodput %", "goodput_share", 100.0, ".1f"),
    ("fairness", "fairness", 1.0, ".3f"),
    ("completed", "completed", 1.0, ",.0f"),
    ("cut", "capped", 1.0, ",.0f"),
    ("rejected", "rejected", 1.0, ",.0f"),
    ("failed", "failed", 1.0, ",.0f"),
)
_SHARES = (
    ("requests", "requests", 1.0, ",.0f"),
    ("share %", "requests_share", 100.0, ".1f"),
    ("busy s", "busy_s", 1.0, ".1f"),
    ("hit rate %", "hit_rate", 100.0, ".2f"),
    ("evicted tokens", "evicted_tokens", 1.0, ",.0f"),
)


def print_run(console: Console, run: Mapping[str, Any]) -> None:
    """Print what `kvgym run` and `kvgym watch` return."""
    title = f"{run['workload']} on {run['cluster']}: {run['routing']} + {run['eviction']}, seed {run['seed']}"
    say(console, title, style="bold")
    rows = [[name, *(_value(run[f"{p}_{key}"], by, style) for p in _POINTS)] for name, key, by, style in _TIMES]
    print_table(console, ["", "mean", "P50", "P90", "P95", "P99"], rows)
    columns = [column for column in _WHOLE if run[column[1]] or (run[column[1]] is not None and column[1] != "capped")]
    say(console, "")
    cells = [_value(run[key], by, style) for _, key, by, style in columns]
    print_table(console, [heading for heading, *_ in columns], [cells], names=0)
    say(console, "")
    header = ["worker", *(heading for heading, *_ in _SHARES)]
    shares = [
        [f"w{number}", *(_value(worker[key], by, style) for _, key, by, style in _SHARES)]
        for number, worker in enumerate(run["workers"])
    ]
    print_table(console, header, shares)
    if run["waterfall"]:
        say(console, "")
        print_waterfall(console, run["waterfall"])
    say(console, "", *_remarks(run))


def _remarks(run: Mapping[str, Any]) -> list[str]:
    """Return the flags, and whether the fleet kept up."""
    lines = [f"flag: {flag}" for flag in run["flags"]]
    if run["saturated"] == 0:
        lines.append("not saturated: the fleet kept up with the arrivals")
    elif run["saturated"] is None:
        lines.append("too few requests to say whether the fleet is saturated")
    if not run["deterministic"]:
        lines.append("not deterministic: measured decision times are charged to the simulated clock")
    return lines


def _value(value: float | None, factor: float, style: str) -> str:
    return "-" if value is None else format(value * factor, style)
