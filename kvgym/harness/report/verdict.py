"""Plain sentences say what a comparison has shown: who is best, by how much, and what of it is noise."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import groupby
from statistics import fmean, geometric_mean
from typing import Any

from kvgym.harness.compare.summary import CellSummary, Summary, Triple
from kvgym.harness.measure.flags import saturation_flags
from kvgym.harness.measure.statistics import paired_ratio
from kvgym.harness.report.drawing.scale import label
from kvgym.harness.report.stakes import eviction_lines

JUDGED = (("p50_latency_s", "median latency (P50)"), ("p95_latency_s", "P95"), ("mean_latency_s", "mean latency"))
"""(metric, its name in a sentence) of what pairs are judged by; less is better."""
_MOST_NAMED = 6
Pair = tuple[str, str]
"""(routing, eviction)."""


@dataclass(frozen=True)
class Best:
    """The best pair by one metric.

    Attributes:
        pair: (routing, eviction).
        value_s: its mean over the seeds.
        ratio: to the baseline; None: that has no result.
        lo: lower end of its 95 % interval; None also with one seed.
        hi: upper end.
        noise: pairs whose difference to the baseline is noise: the interval of their ratio includes 1.
        equals: pairs that cannot be told apart from the best one, likewise.
    """

    pair: Pair
    value_s: float
    ratio: float | None
    lo: float | None
    hi: float | None
    noise: list[Pair]
    equals: list[Pair]


@dataclass(frozen=True)
class Verdict:
    """What is to be said of one workload on one fleet.

    Attributes:
        workload: its label.
        cluster: its label.
        baseline: the pair that the others are compared with.
        seeds: those that every judged pair has; only they are compared.
        best: metric of `JUDGED` -> best pair; policies that see the future are not judged.
        saturated: pairs whose backlog grew.
        sentences: all of it in words.
    """

    workload: str
    cluster: str
    baseline: Pair
    seeds: list[int]
    best: dict[str, Best]
    saturated: list[Pair]
    sentences: list[str]

    @property
    def title(self) -> str:
        """What the verdict is about."""
        return f"{self.workload} on {self.cluster}"


def verdicts(summary: Summary) -> list[Verdict]:
    """Return a verdict per workload and fleet, in the order of the tables."""
    groups = groupby(summary.cells, key=lambda cell: cell.labels[:2])
    return [_judge(list(cells), summary.baseline) for _, cells in groups]


def plain_verdicts(summary: Summary) -> list[dict[str, Any]]:
    """Return the verdicts as plain data."""
    return [asdict(verdict) for verdict in verdicts(summary)]


def _judge(cells: list[CellSummary], baseline: Pair) -> Verdict:
    judged = [cell for cell in cells if not cell.oracle and cell.mean("completed")]
    shared = [seed for seed in cells[0].seeds if all(seed in cell.seeds for cell in judged)]
    best = {metric: found for metric, _ in JUDGED if (found := _best(judged, shared, metric, baseline))}
    saturated = [_pair(cell) for cell in cells if any(row.get("saturated") for row in cell.per_seed)]
    sentences = [*_seed_sentences(judged, shared), *_best_sentences(best, baseline)]
    sentences += [*_noise_sentences(judged, shared, best, baseline), *eviction_lines(cells)]
    sentences += [*_saturation_sentences(cells, saturated), *unanswered(cells), *_flag_sentences(cells)]
    return Verdict(*cells[0].labels[:2], baseline, shared, best, saturated, sentences)


def _best(cells: list[CellSummary], seeds: list[int], metric: str, baseline: Pair) -> Best | None:
    """Return the best pair by `metric` over `seeds`; None where no pair has a value for each of them."""
    values = {_pair(cell): _values(cell, seeds, metric) for cell in cells}
    known = {pair: found for pair, found in values.items() if found and min(found) > 0}
    if not known:
        return None
    best = min(known, key=lambda pair: geometric_mean(known[pair]))  # the order of the ratios
    base = known.get(baseline, [])
    ratios: dict[Pair, Triple] = {p: paired_ratio(each if base else [], base) for p, each in known.items()}
    noise = [pair for pair, ratio in ratios.items() if pair != baseline and _includes_one(*ratio)]
    equals = [pair for pair in known if pair != best and _includes_one(*paired_ratio(known[pair], known[best]))]
    return Best(best, fmean(known[best]), *ratios[best], noise, equals)


def _values(cell: CellSummary, seeds: list[int], metric: str) -> list[float]:
    """Return the values of the seeds; none at all where one has no value."""
    rows = dict(zip(cell.seeds, cell.per_seed, strict=True))
    found = [value for seed in seeds if (value := rows[seed][metric]) is not None]
    return found if len(found) == len(seeds) else []


def _includes_one(_ratio: float | None, lo: float | None, hi: float | None) -> bool:
    return lo is not None and hi is not None and lo <= 1.0 <= hi


def _seed_sentences(judged: list[CellSummary], shared: list[int]) -> Iterator[str]:
    if not judged:
        return
    missing = len({seed for cell in judged for seed in cell.seeds} - set(shared))
    if missing and shared:
        yield f"Runs are missing: compared over the {_count(shared)} that every pair has; {missing} left out."
    elif missing:
        yield "Runs are missing: no seed was finished by every pair, so there is nothing to compare yet."


def _best_sentences(best: dict[str, Best], baseline: Pair) -> Iterator[str]:
    for metric, name in JUDGED:
        if metric not in best:
            continue
        found = best[metric]
        text = f"Best {name}: {_said(found.pair)}, {label(found.value_s)} s"
        if found.pair == baseline:
            text += ", which is the baseline"
        elif found.ratio is not None:
            interval = "" if found.lo is None else f", 95 % interval {found.lo:.3g} to {found.hi:.3g}"
            text += f", {_against(found.ratio)} {_said(baseline)} (ratio {found.ratio:.3f}{interval})"
            text += ", which may be noise" if found.pair in found.noise else ""
        else:
            text += "; the baseline has no result to compare with"
        yield text + (f". Not told apart from it: {_listed(found.equals)}." if found.equals else ".")


def _noise_sentences(
    judged: list[CellSummary], shared: list[int], best: dict[str, Best], baseline: Pair
) -> Iterator[str]:
    if not best or len(judged) < 2:
        return
    if len(shared) == 1:
        yield "One seed: nothing can be said about noise; take more with --seeds 5."
        return
    if all(each.ratio is None for each in best.values()):
        return
    noisy = [f"{name}: {_listed(best[metric].noise)}" for metric, name in JUDGED if metric in best]
    if any(each.noise for each in best.values()):
        yield f"Noise, as the 95 % interval of the ratio to {_said(baseline)} includes 1: {'; '.join(noisy)}."
    else:
        yield f"No difference to {_said(baseline)} is noise: over {_count(shared)} no 95 % interval includes 1."


def _saturation_sentences(cells: list[CellSummary], saturated: list[Pair]) -> Iterator[str]:
    known = [cell for cell in cells if cell.mean("saturated") is not None]
    if saturated:
        who = "every pair" if len(saturated) == len(cells) > 1 else _listed(saturated)
        yield f"Saturated: {who}; the backlog grew, so these latencies depend on how long the run is."
    elif known and len(known) == len(cells):
        yield "Nothing saturates: every pair kept up with the arrivals."


def _flag_sentences(cells: list[CellSummary]) -> Iterator[str]:
    """Yield what else is flagged, and who left requests unanswered."""
    for cell in cells:
        told = saturation_flags({s: row.get("saturated") for s, row in zip(cell.seeds, cell.per_seed, strict=True)})
        for flag in cell.flags:
            if flag not in told:
                yield f"Flagged: {_said(_pair(cell))}: {flag}."
        rejected, failed = cell.mean("rejected") or 0.0, cell.mean("failed") or 0.0
        if cell.mean("completed") and rejected + failed:
            counts = f"{label(rejected)} rejected and {label(failed)} failed a seed"
            yield f"Flagged: {_said(_pair(cell))} left requests unanswered ({counts}); its latencies are of the others."


def unanswered(cells: Sequence[CellSummary]) -> list[str]:
    """Return a sentence on each cell of which no request was answered: its columns are empty for that reason."""
    return [
        f"{_said(_pair(cell))}: no request was answered ({cell.mean('rejected'):.0f} rejected because they "
        f"fit no worker, {cell.mean('failed'):.0f} failed); there is nothing to compare."
        for cell in cells
        if not cell.mean("completed")
    ]


def _pair(cell: CellSummary) -> Pair:
    return cell.labels[2:]


def _said(pair: Pair) -> str:
    return " + ".join(pair)


def _listed(pairs: Sequence[Pair]) -> str:
    named = ", ".join(map(_said, pairs[:_MOST_NAMED])) or "none"
    return named + (f" and {len(pairs) - _MOST_NAMED} more" if len(pairs) > _MOST_NAMED else "")


def _count(seeds: Sequence[int]) -> str:
    return f"{len(seeds)} seed{'s' * (len(seeds) != 1)}"


def _against(ratio: float) -> str:
    """Return ``32 % below`` or ``8.5 % above``."""
    percent = abs(1.0 - ratio) * 100
    return f"{percent:.{1 if percent < 9.95 else 0}f} % {'above' if ratio > 1 else 'below'}"
