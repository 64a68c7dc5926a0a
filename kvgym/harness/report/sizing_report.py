"""Shows a plan: workers needed, what the second-best policy costs, and the highest load, as tables and sentences."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby

from rich.console import Console

from kvgym.config.options import to_plain
from kvgym.config.slo import SLO
from kvgym.harness.measure.bisection import Estimate
from kvgym.harness.measure.sized import Sized, Sizing
from kvgym.harness.report.console import print_table, say

_NAMES = {"ttft_s": "TTFT", "tpot_s": "TPOT", "latency_s": "latency"}


def objective_words(slo: SLO, share: float) -> str:
    """Return the objective in words."""
    limits = [f"{_NAMES[name]} <= {limit:g} s" for name, limit in to_plain(slo).items() if limit is not None]
    return f"{' and '.join(limits)} for {share:.4g} of the requests".replace("for 1 of the", "for all")


def sizing_rows(sized: Sequence[Sized]) -> tuple[list[str], list[list[str]]]:
    """Return header and rows of one workload and kind of worker."""
    loads = any(each.rps for each in sized)
    fleet = sized[0].fleet
    header = ["routing", "eviction", "workers", "more than the best", "kept %", "P95 s", "hit %"]
    header += [f"req/s kept by {fleet} worker{'s' * (fleet > 1)}"] * loads
    rows = []
    for each in sized:
        workers = _between((each.workers.value, each.workers.low, each.workers.high), ".0f")
        extra = _between(each.extra, "+.1f") if each.extra else "-"
        kept = [_number(each.at, "goodput_share", 100.0, ".2f"), _number(each.at, "p95_latency_s", 1.0, ".2f")]
        row = [*each.labels[2:], workers, extra, *kept, _number(each.at, "hit_rate", 100.0, ".1f")]
        rows.append([*row, *([_between(each.rps or (None, None, None), ".3g")] if loads else [])])
    return header, rows


def sizing_lines(sized: Sequence[Sized], most: int) -> Iterator[str]:
    """Yield what follows for one workload and kind of worker, in sentences."""
    best = sized[0]
    if best.workers.value is None:
        yield f"No pair keeps the objective with up to {most} workers."
        return
    yield f"Smallest fleet: {_workers(best.workers.value)}, {' + '.join(best.labels[2:])}{_interval(best.workers)}."
    for each in sized[1:2]:
        name = " + ".join(each.labels[2:])
        if each.workers.value is None:
            yield f"Second best: {name} does not keep it with up to {most} workers."
        elif each.extra and each.extra[0] is not None:
            more = each.workers.value - best.workers.value
            between = "" if each.extra[1] is None else f", 95 % interval {each.extra[1]:+.1f} to {each.extra[2]:+.1f}"
            seeds = f"{each.extra[0]:+.1f} a seed{between}"
            yield f"Second best: {name}, {_workers(each.workers.value)}; it costs {more:+.0f} workers ({seeds})."


def print_sizing(console: Console, sizing: Sizing) -> None:
    """Print all tables, and what follows from them."""
    objective, seeds = sizing.objective, len(sizing.objective.seeds)
    for (workload, cluster), group in groupby(sizing.sized, key=lambda each: each.labels[:2]):
        sized = list(group)
        title = f"\n{workload} on workers of {cluster}: {objective_words(objective.slo, objective.share)}"
        print_table(console, *sizing_rows(sized), title=title, names=2)
        say(console, *sizing_lines(sized, sizing.most), indent=2)
    many = f"{seeds} seed{'s' * (seeds > 1)}"
    say(
        console,
        "",
        f"{many}, the same at every point; in parentheses 95 % intervals over seeds; {sizing.runs} runs.",
        "kept %, P95 and hit % are those of the smallest fleet, means over seeds.",
    )


def _workers(count: float) -> str:
    return f"{count:.0f} worker{'s' * (count != 1)}"


def _interval(estimate: Estimate) -> str:
    if estimate.low is None:
        return ""
    high = "more than was tried" if estimate.high is None else f"{estimate.high:.0f}"
    return f" (95 % interval {estimate.low:.0f} to {high})"


def _between(triple: tuple[float | None, float | None, float | None], style: str) -> str:
    value, low, high = triple
    if value is None:
        return "none"
    if low is None and high is None:
        return format(value, style)
    return f"{value:{style}} ({_end(low, style)} to {_end(high, style)})"


def _end(value: float | None, style: str) -> str:
    return "?" if value is None else format(value, style)


def _number(at: Mapping[str, float | None], name: str, by: float, style: str) -> str:
    value = at.get(name)
    return "-" if value is None else format(value * by, style)
