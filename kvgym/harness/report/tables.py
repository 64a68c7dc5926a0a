"""Writes a comparison's tables: summary and classes, timing.csv, report.md, and text for the terminal."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Any

from rich.console import Console

from kvgym.config.options import to_plain
from kvgym.harness.compare.grid import CompareConfig
from kvgym.harness.compare.results import Results
from kvgym.harness.compare.store import to_json, write_text
from kvgym.harness.compare.summary import CellSummary, Summary, Triple
from kvgym.harness.measure.classes import CLASS_METRICS
from kvgym.harness.measure.statistics import METRICS, RATIO_METRICS
from kvgym.harness.report.beside import TITLE, beside_rows
from kvgym.harness.report.console import print_table, say
from kvgym.harness.report.explained import HINT, Explained, explained_rows, moved_lines, print_explained
from kvgym.harness.report.explained import TITLE as WATERFALL
from kvgym.harness.report.verdict import verdicts

COLUMNS: tuple[tuple[str, str, float, str], ...] = (
    ("P50 s", "p50_latency_s", 1.0, ".3f"),
    ("P95 s", "p95_latency_s", 1.0, ".2f"),
    ("TTFT P50 s", "p50_ttft_s", 1.0, ".3f"),
    ("TPOT P50 ms", "p50_tpot_s", 1000.0, ".2f"),
    ("TPOT P95 ms", "p95_tpot_s", 1000.0, ".2f"),
    ("goodput %", "goodput_share", 100.0, ".1f"),
    ("good req/s", "goodput_rps", 1.0, ".2f"),
    ("fairness", "fairness", 1.0, ".3f"),
    ("hit %", "hit_rate", 100.0, ".2f"),
    ("bound %", "hit_bound", 100.0, ".2f"),
    ("of possible %", "possible_share", 100.0, ".1f"),
    ("makespan s", "makespan_s", 1.0, ".1f"),
    ("load s", "makespan_load_s", 1.0, ".1f"),
    ("req/s", "throughput_rps", 1.0, ".2f"),
    ("imbalance", "load_imbalance", 1.0, ".2f"),
    ("prediction error %", "prediction_error", 100.0, ".0f"),
    ("prediction bias %", "prediction_bias", 100.0, "+.0f"),
    ("saturated %", "saturated", 100.0, ".0f"),
    ("answers cut", "capped", 1.0, ".0f"),
)
"""Columns of the tables: heading, metric, factor, format; cells show the mean and [the range] over seeds.

A column without any value is left out, and so is that of cut answers where there are none. Saturated: of the seeds.
"""
CLASS_COLUMNS: tuple[tuple[str, str, float, str], ...] = (
    ("requests", "requests", 1.0, ".0f"),
    ("P50 s", "p50_latency_s", 1.0, ".3f"),
    ("P95 s", "p95_latency_s", 1.0, ".2f"),
    ("TTFT P50 s", "p50_ttft_s", 1.0, ".3f"),
    ("TTFT P95 s", "p95_ttft_s", 1.0, ".2f"),
    ("ms per token", "mean_normalized_latency_s", 1000.0, ".1f"),
    ("goodput %", "goodput_share", 100.0, ".1f"),
)
"""Columns of the table per class."""

_LONG_ONLY = {"makespan_load_s", "throughput_rps", "p50_tpot_s", "p95_tpot_s", "goodput_rps"}
_LONG_ONLY |= {"prediction_error", "prediction_bias"}
_RANGED = ("p50_latency_s", "hit_rate")
_LABELS = ("workload", "cluster", "routing", "eviction")


def write_tables(results: Results) -> None:
    """Write summary.csv, summary.json, timing.csv and, with several classes, classes.csv of a finished comparison.

    All but timing.csv hold simulated quantities only: the same configuration gives the same bytes.

    Raises:
        ResultsError: the folder cannot be written.
    """
    folder, summary = results.store.folder, results.summary
    write_text(folder / "summary.csv", _summary_csv(summary))
    if any(cell.classes for cell in summary.cells):
        write_text(folder / "classes.csv", _classes_csv(summary))
    write_text(folder / "summary.json", to_json(_summary_plain(results)))
    write_text(folder / "timing.csv", _timing_csv(summary))


def write_markdown(results: Results) -> None:
    """Write report.md to the folder of `results`.

    Raises:
        ResultsError: the folder cannot be written.
    """
    write_text(results.store.folder / "report.md", markdown(results))


def _summary_csv(summary: Summary) -> str:
    header = [*_LABELS, "seeds"]
    header += [f"{metric}{end}" for metric in METRICS for end in ("", "_min", "_max")]
    header += [f"{metric}_ratio{end}" for metric in RATIO_METRICS for end in ("", "_lo", "_hi")]
    rows = []
    for cell in summary.cells:
        triples = [cell.metrics[metric] for metric in METRICS] + [cell.ratios[metric] for metric in RATIO_METRICS]
        rows.append([*cell.labels, len(cell.seeds), *(value for triple in triples for value in triple)])
    return _csv(header, rows)


def _classes_csv(summary: Summary) -> str:
    header = [
        *_LABELS,
        "kind",
        "class",
        *(f"{metric}{end}" for metric in CLASS_METRICS for end in ("", "_min", "_max")),
    ]
    rows = []
    for cell in summary.cells:
        for (kind, number), metrics in cell.classes.items():
            values = [value for metric in CLASS_METRICS for value in metrics[metric]]
            rows.append([*cell.labels, kind, number, *values])
    return _csv(header, rows)


def _timing_csv(summary: Summary) -> str:
    header = [*_LABELS, "seed", "wall_s", "decisions", "decision_s", "decision_us"]
    rows = []
    for cell in summary.cells:
        for seed, timing in zip(cell.seeds, cell.timing, strict=True):
            each_us = 1e6 * timing["decision_s"] / max(timing["decisions"], 1)
            measured = (timing["wall_s"], timing["decisions"], timing["decision_s"], each_us)
            rows.append([*cell.labels, seed, *measured])
    return _csv(header, rows)


def _csv(header: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(header)
    writer.writerows(rows)  # floats are written by repr: exact, and empty where there is no value
    return text.getvalue()


def _summary_plain(results: Results) -> dict[str, Any]:
    config, summary, cells = results.config, results.summary, []
    for cell in summary.cells:
        seeds = [{"seed": seed, **row} for seed, row in zip(cell.seeds, cell.per_seed, strict=True)]
        ratios = {
            metric: dict(zip(("ratio", "lo", "hi"), triple, strict=True)) for metric, triple in cell.ratios.items()
        }
        classes = [
            {"kind": kind, "class": number, **{metric: triple[0] for metric, triple in metrics.items()}}
            for (kind, number), metrics in cell.classes.items()
        ]
        facts: dict[str, Any] = {
            "per_seed": seeds,
            "ratios": ratios,
            "classes": classes,
            "published": dict(cell.published),
        }
        shares = {name: triple[0] for name, triple in cell.waterfall.items()}
        facts |= {"hit_gain": dict(zip(("gain", "lo", "hi"), cell.hit_gain, strict=True)), "oracle": cell.oracle}
        cells.append({**cell.brief, **facts, "flags": cell.flags, "waterfall": shares})
    baseline = dict(zip(_LABELS[2:], summary.baseline, strict=True))
    head = {"name": config.name, "deterministic": config.deterministic, "baseline": baseline}
    return {**head, "slo": to_plain(config.slo), "skipped": results.skipped, "cells": cells}


def markdown(results: Results) -> str:
    """Return report.md: verdicts, what is missing, a table per workload and fleet, published values beside ours."""
    config, summary = results.config, results.summary
    lines = [f"# {config.name}", ""]
    for verdict in verdicts(summary):
        lines += [f"## Verdict: {verdict.title}", "", *(f"- {sentence}" for sentence in verdict.sentences), ""]
    lines += ["## What was compared", ""]
    if config.notes:
        lines += [config.notes.strip(), ""]
    seeds = ", ".join(map(str, config.seed_list))
    lines += [
        f"Seeds: {seeds}, the same for every row. Mean over seeds, range in brackets.",
        f"Ratio: geometric mean over paired seeds against {' + '.join(summary.baseline)}, with its 95 % interval.",
        "Definitions of the metrics: `kvgym/harness/measure/statistics.py`. Raw request records: `records/`. "
        "Plots: `report.html`.",
        *conditions(config),
        "",
    ]
    if missing := missing_lines(results):
        lines += ["## Not finished", "", *(f"- {item}" for item in missing), ""]
    if beside := beside_rows(summary.cells):
        lines += [f"## {TITLE}", "", *_markdown_table(*beside), ""]
    for (workload, cluster), group in groupby(summary.cells, key=lambda cell: cell.labels[:2]):
        cells = list(group)
        lines += [f"## {workload} on {cluster}", ""]
        lines += [*(f"- {key}: {value}" for key, value in cells[0].notes.items()), ""]
        lines += [*_markdown_table(*table_rows(cells)), ""]
        for kind, header, rows in class_rows(cells):
            lines += [f"### Per {kind}", "", *_markdown_table(header, rows), ""]
        if explained := explained_rows(waterfalls(cells)):
            moved = [f"- {line}" for line in moved_lines(waterfalls(cells), summary.baseline)]
            lines += [f"### {WATERFALL}", "", HINT, "", *_markdown_table(*explained), "", *moved, ""]
    if published := published_rows(summary.cells):
        lines += ["## Published values beside ours", "", *_markdown_table(*published), ""]
    lines += results.skipped
    return "\n".join(lines).rstrip() + "\n"


def missing_lines(results: Results) -> list[str]:
    """Return one line per cell with runs that are not finished."""
    seeds: dict[tuple[str, ...], list[str]] = {}
    for labels, seed in results.missing:
        seeds.setdefault(labels, []).append(str(seed))
    return [
        f"{' / '.join(labels)}: no result of seed{'s' * (len(s) > 1)} {', '.join(s)}" for labels, s in seeds.items()
    ]


def conditions(config: CompareConfig) -> list[str]:
    """Return what the numbers depend on besides the cells, one sentence each."""
    lines = []
    if config.warmup_s:
        lines.append(f"Requests that arrive in the first {config.warmup_s:g} s count in totals and rates only.")
    if config.slo:
        limits = [f"{name} <= {limit:g}" for name, limit in to_plain(config.slo).items() if limit is not None]
        lines.append(f"Goodput: requests with {', '.join(limits)}.")
    if config.live:
        lines.append("**Not deterministic**: rows of real servers are measured in wall time.")
    if config.bounds:
        lines.append(
            "Bound: the hit rate that no eviction policy could have exceeded in that run. Hit gain: hit rate minus the "
            "baseline's, mean over paired seeds with its 95 % interval. (oracle): sees the future."
        )
    if config.charge_decision_time == "measured":
        lines.append("**Not deterministic**: measured decision times are charged to the simulated clock.")
    elif config.charge_decision_time:
        lines.append(f"Each decision takes {config.charge_decision_time:g} s of simulated time, one after the other.")
    return lines


def class_rows(cells: Sequence[CellSummary]) -> Iterator[tuple[str, list[str], list[list[str]]]]:
    """Yield (kind, header, rows) per kind of class that there is: a row for each pair and class, means over seeds."""
    for kind in ("priority", "tenant"):
        found = [(cell, name, values) for cell in cells for name, values in cell.classes.items() if name[0] == kind]
        columns = [column for column in CLASS_COLUMNS if any(values[column[1]][0] is not None for *_, values in found)]
        rows = []
        for cell, name, values in found:
            numbers = (_number(values[metric][0], by, style) for _, metric, by, style in columns)
            rows.append([*cell.labels[2:], str(name[1]), *numbers])
        if rows:
            yield kind, ["routing", "eviction", kind, *(heading for heading, *_ in columns)], rows


def print_comparison(console: Console, summary: Summary) -> None:
    """Print the verdicts, then a table per workload and fleet with the columns that decide."""
    print_verdicts(console, summary)
    for (workload, cluster), group in groupby(summary.cells, key=lambda cell: cell.labels[:2]):
        cells = list(group)
        print_table(console, *table_rows(cells, short=True), title=f"\n{workload} on {cluster}", names=2)
        print_explained(console, f"{workload} on {cluster}", waterfalls(cells))
    if beside := beside_rows(summary.cells):
        print_table(console, *beside, title=f"\n{TITLE}", names=3)
    seeds = len(summary.cells[0].seeds)
    told = f"mean over {seeds} seed{'s' * (seeds > 1)} [range]; ratio to {' + '.join(summary.baseline)} (95 %)"
    say(console, "", told)


def waterfalls(cells: Sequence[CellSummary]) -> list[Explained]:
    """Return what is known of the prompt tokens of each cell."""
    return [Explained(cell.labels[2:], cell.waterfall) for cell in cells]


def print_verdicts(console: Console, summary: Summary) -> None:
    """Print what the comparison has shown, per workload and fleet."""
    for verdict in verdicts(summary):
        say(console, verdict.title, style="bold")
        say(console, *verdict.sentences, indent=2)


def table_rows(cells: Sequence[CellSummary], short: bool = False) -> tuple[list[str], list[list[str]]]:
    """Return header and rows; `short` leaves out what a terminal has no room for."""
    columns = [column for column in COLUMNS if not (short and column[1] in _LONG_ONLY)]
    columns = [column for column in columns if any(_has(cell, column[1]) for cell in cells)]
    header = ["routing", "eviction", *(name for name, *_ in columns), "done/rejected/failed", "P50 ratio"]
    bounded = any(cell.mean("hit_bound") is not None for cell in cells)
    header += ["hit gain, points"] * bounded
    rows = []
    for cell in cells:
        values = []
        for _, metric, factor, style in columns:
            mean, low, high = cell.metrics[metric]
            ranged = not short or metric in _RANGED
            values.append(_spread((mean, low, high) if ranged else (mean, mean, mean), factor, style))
        counts = "/".join(_number(cell.mean(name), 1.0, ".0f") for name in ("completed", "rejected", "failed"))
        name = cell.labels[3] + " (oracle)" * cell.oracle
        gain = [_interval(cell.hit_gain, 100.0, "+.2f", " to ")] * bounded
        rows.append([cell.labels[2], name, *values, counts, _interval(cell.ratios["p50_latency_s"]), *gain])
    return header, rows


def _has(cell: CellSummary, metric: str) -> bool:
    value = cell.mean(metric)
    return bool(value) if metric == "capped" else value is not None


def _spread(triple: Triple, factor: float, style: str) -> str:
    mean, low, high = triple
    text = _number(mean, factor, style)
    return text if low == high else f"{text} [{_number(low, factor, style)}-{_number(high, factor, style)}]"


def _interval(triple: Triple, factor: float = 1.0, style: str = ".3f", dash: str = "-") -> str:
    value, low, high = triple
    text = _number(value, factor, style)
    return text if low is None else f"{text} ({_number(low, factor, style)}{dash}{_number(high, factor, style)})"


def _number(value: float | None, factor: float, style: str) -> str:
    return "-" if value is None else format(value * factor, style)


def published_rows(cells: Sequence[CellSummary]) -> tuple[list[str], list[list[str]]] | None:
    """Return header and rows of published values beside ours; None where nothing was published."""
    metrics = [metric for metric in METRICS if any(metric in cell.published for cell in cells)]
    if not metrics:
        return None
    header = ["routing", "eviction", *(f"{metric} {whose}" for metric in metrics for whose in ("published", "ours"))]
    rows = []
    for cell in cells:
        pairs = [(cell.published.get(metric), cell.mean(metric)) for metric in metrics]
        rows.append([*cell.labels[2:], *(_number(value, 1.0, ".4g") for pair in pairs for value in pair)])
    return header, rows


def _markdown_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    return [_line(header), _line(["---"] * len(header)), *map(_line, rows)]


def _line(row: Sequence[str]) -> str:
    return f"| {' | '.join(row)} |"
