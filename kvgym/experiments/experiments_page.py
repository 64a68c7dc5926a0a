"""Writes EXPERIMENTS.md: every published claim, what the simulator gives, and whether they agree."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from kvgym.experiments.claims import Finding
from kvgym.experiments.experiment import Experiment, Outcome, findings, load_experiment

_SHARES = ("hit_rate", "hit_bound", "possible_share", "goodput_share", "busiest_share")
_HEADER = ("claim", "published", "ours [95 %]", "ours/published", "verdict", "why")
_FAIR_HEADER = ("claim", "factor in the paper's setting", "here", "verdict", "why")


def markdown(outcomes: Mapping[str, Outcome]) -> str:
    """Return the page for these outcomes; the same outcomes give the same bytes."""
    judged = {name: findings(name, outcome) for name, outcome in outcomes.items()}
    lines = ["# Experiments", "", "Made by `python scripts/reproduce.py` from the configurations in "
             "[configs/experiments](configs/experiments); the figures of every run are in "
             "[docs/experiments.json](docs/experiments.json). Published: Wu, Silwal and Zhang, "
             "*Randomization Boosts KV Caching, Learning Balances Query Load* (ICLR 2026, arXiv 2601.18999). One set "
             "of constants for all experiments: the fleet [l40x4_fitted](configs/clusters/l40x4_fitted.yaml), unless "
             "an experiment says otherwise.", ""]  # fmt: skip
    lines += _overview(judged)
    for name, outcome in outcomes.items():
        lines += ["", *_section(name, load_experiment(name), outcome, judged[name])]
    return "\n".join(lines) + "\n"


def write_page(path: Path, outcomes: Mapping[str, Outcome]) -> None:
    """Write the page."""
    path.write_text(markdown(outcomes), encoding="utf-8")


def verdict_counts(judged: list[Finding]) -> dict[str, int]:
    """Return verdict -> how many claims have it, in the order in which they first appear."""
    counts: dict[str, int] = {}
    for finding in judged:
        counts[finding.verdict] = counts.get(finding.verdict, 0) + 1
    return counts


def _overview(judged: Mapping[str, list[Finding]]) -> Iterator[str]:
    yield from _table(("experiment", "claims", "verdicts"), (
        (f"[{load_experiment(name).title}](#{name})", str(len(found)), said(verdict_counts(found)))
        for name, found in judged.items()
    ))  # fmt: skip


def said(counts: Mapping[str, int]) -> str:
    """Return the counts of verdicts in words."""
    return ", ".join(f"{count} {verdict}" for verdict, count in counts.items())


def _section(name: str, experiment: Experiment, outcome: Outcome, judged: list[Finding]) -> Iterator[str]:
    yield f'## <a id="{name}"></a>{experiment.title}'
    yield ""
    command = f"python scripts/reproduce.py {name}{' --quick' * outcome.quick}"
    yield f"{experiment.source}. `{command}`, {outcome.seeds} seed{'s' * (outcome.seeds > 1)}."
    if experiment.notes:
        yield ""
        yield experiment.notes.strip()
    for header, row, fair in ((_HEADER, _row, False), (_FAIR_HEADER, _fair_row, True)):
        rows = [row(finding) for finding in judged if bool(finding.fair) == fair]
        if rows:
            yield ""
            yield from _table(header, rows)


def _row(finding: Finding) -> tuple[str, ...]:
    claim = finding.claim
    published = "" if claim.published is None else _figure(claim.published, finding)
    ratio = ""
    if claim.published is not None and claim.shape != "curve":
        values = [value for value, *_ in finding.ours.values()]
        ratio = f"{math.fsum(values) / len(values) / claim.published:.2f}"
    return claim.say, published, _ours(finding.ours, finding), ratio, finding.verdict, claim.why


def _fair_row(finding: Finding) -> tuple[str, ...]:
    claim = finding.claim
    return claim.say, _ours(finding.ours, finding), _ours(finding.fair, finding), finding.verdict, claim.why


def _ours(figures: Mapping, finding: Finding) -> str:
    if len(figures) == 1:
        return _with_interval(next(iter(figures.values())), finding)
    by_workload = len({place[0] for place in figures}) > 1
    return "; ".join(
        f"{_last_word(place[0 if by_workload else 1])}: {_with_interval(figure, finding)}"
        for place, figure in figures.items()
    )


def _last_word(label: str) -> str:
    return label.split()[-1]


def _with_interval(figure: tuple, finding: Finding) -> str:
    value, low, high = figure
    text = _figure(value, finding)
    return text if low is None else f"{text} [{_figure(low, finding, False)}, {_figure(high, finding, False)}]"


def _figure(value: float, finding: Finding, unit: bool = True) -> str:
    """Return a factor as 2.3x, a share in per cent, seconds with their unit."""
    metric = finding.claim.metric
    if finding.claim.against is not None:
        return f"{value:.3g}{'x' * unit}"
    if metric in _SHARES:
        return f"{100 * value:.1f}{' %' * unit}"
    return f"{value:.3g}{' s' * (unit and metric.endswith('_s'))}"


def _table(header: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> Iterator[str]:
    for cells in (header, ("---",) * len(header), *rows):
        yield f"| {' | '.join(cells)} |"
