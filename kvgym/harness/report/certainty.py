"""Prints how sure a comparison's verdicts are: chances over plausible clusters, and what would flip a winner."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import groupby
from typing import Any

from rich.console import Console

from kvgym.harness.report.console import print_table, say

Pair = tuple[str, str]
"""(routing, eviction)."""
LEAST, MOST = 0.5, 2.0
"""As far as a constant is moved."""
_TITLES = {"p50_latency_s": "P50", "p95_latency_s": "P95", "mean_latency_s": "mean"}


@dataclass(frozen=True)
class Chance:
    """How often one pair beats the baseline in the drawn clusters, by one metric.

    Attributes:
        workload, cluster, pair, metric: of what.
        share: of the draws in which the pair is better, over all seeds together.
        median, low, high: of the ratio to the baseline over the draws, and the range of nine tenths of them.
    """

    workload: str
    cluster: str
    pair: Pair
    metric: str
    share: float
    median: float
    low: float
    high: float


@dataclass(frozen=True)
class Card:
    """What moving one constant does to the winner: the nearest factors that change it, and to whom."""

    workload: str
    cluster: str
    metric: str
    constant: str
    winner: Pair
    flips: dict[float, Pair]


def chance_sentence(chance: Chance, baseline: Pair, source: str) -> str:
    """Return a chance in words."""
    return (
        f"{_said(chance.pair)} beats {_said(baseline)} on {_TITLES[chance.metric]} in {chance.share:.0%} of {source}: "
        f"{chance.median:.3g} of its latency ({chance.low:.3g} to {chance.high:.3g})"
    )


def print_chances(console: Console, found: Sequence[Chance], baseline: Pair, source: str) -> None:
    """Print a sentence per pair and metric, workload by workload."""
    for (workload, cluster), chances in groupby(found, key=lambda chance: (chance.workload, chance.cluster)):
        say(console, f"{workload} on {cluster}", style="bold")
        say(console, *(f"{chance_sentence(chance, baseline, source)}." for chance in chances), indent=2)


def print_cards(console: Console, found: Sequence[Card]) -> None:
    """Print a table per workload and fleet: constant, and the nearest factors either way that change the winner."""
    for (workload, cluster), cards in groupby(found, key=lambda card: (card.workload, card.cluster)):
        by_metric = {metric: list(group) for metric, group in groupby(cards, key=lambda card: card.metric)}
        for metric, own in by_metric.items():
            title = f"{workload} on {cluster}: {_TITLES[metric]}, best is {_said(own[0].winner)}"
            rows = [[card.constant, _nearest(card, below=True), _nearest(card, below=False)] for card in own]
            print_table(console, ["constant", "smaller: winner changes at", "larger: at"], rows, title)


def plain(found: Sequence[Chance] | Sequence[Card]) -> list[dict[str, Any]]:
    """Return chances or cards as plain data."""
    return [asdict(each) for each in found]


def _nearest(card: Card, below: bool) -> str:
    factors = [factor for factor in card.flips if (factor < 1.0) == below]
    if not factors:
        return f"not down to x {LEAST:g}" if below else f"not up to x {MOST:g}"
    factor = max(factors) if below else min(factors)
    return f"x {factor:g} to {_said(card.flips[factor])}"


def _said(pair: Pair) -> str:
    return " + ".join(pair)
