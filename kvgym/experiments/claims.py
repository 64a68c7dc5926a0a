"""Claims about a comparison's cells, and how the simulated figures bear them out."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from kvgym.config.options import option
from kvgym.errors import ConfigError
from kvgym.harness.measure.statistics import METRICS, paired_difference, paired_ratio

Labels = tuple[str, str, str, str]
Metrics = Mapping[str, Sequence[float | None]]
"""Metric -> its value for each seed."""

HIGHER_IS_BETTER = ("hit_rate", "throughput_rps", "goodput_rps", "goodput_share", "fairness")
_NAMES = ("workload", "cluster", "routing", "eviction")
_HUNDREDTH = 0.01
_AVERAGE_WITHIN = 1.5
_WEAKENED = 0.5
"""A factor whose logarithm shrinks to less than this part of the published setting's has weakened."""


@dataclass(frozen=True)
class Claim:
    """One published sentence as numbers.

    With `against` the figure is the factor by which `cell` is better there: 2 says half the latency, or twice the hits.
    A claim with a `shape` is about every workload and fleet of the comparison: ahead in all, ahead by more from the
    first to the last, on average of the factors within 1.5 of the published one, or a curve, only shown. `fair` names
    another `cell`, another `against` or both, a fairer opponent or another setting: does the verdict survive it?

    Raises:
        ConfigError: the claim can't be judged: no such metric, or no single limit.
    """

    say: str
    metric: str
    cell: dict[str, str] = field(default_factory=dict)
    against: dict[str, str] | None = option(None, "the cell that is beaten; none: the figure is the metric itself")
    published: float | None = option(None, "the published figure; none: only a direction was published")
    within: float = option(0.0, "largest factor between ours and the published figure", low=0)
    points: float = option(0.0, "largest distance from a published share, in points", low=0)
    between: tuple[float, ...] = option((), "the range that ours has to lie in: [low, high]")
    shape: Literal["", "ahead", "widens", "average", "curve"] = option("", "what holds over all workloads and fleets")
    fair: dict[str, dict[str, str]] = field(default_factory=dict)
    why: str = option("", "one line on the difference")

    def __post_init__(self) -> None:
        if self.metric not in METRICS:
            raise ConfigError(f"unknown metric {self.metric!r}; known: {', '.join(METRICS)}")
        if unknown := sorted(set(self.fair) - {"cell", "against"}):
            raise ConfigError(f"fair may change cell and against; got {unknown[0]!r}: {self.say!r}")
        for part in (self.cell, self.against or {}, *self.fair.values()):
            if unknown := sorted(set(part) - set(_NAMES)):
                raise ConfigError(f"a cell is named by {', '.join(_NAMES)}; got {unknown[0]!r}")
        limits = [bool(self.within), bool(self.points), bool(self.between), bool(self.shape), bool(self.fair)]
        if sum(limits) != 1:
            raise ConfigError(f"a claim needs one of within, points, between, shape and fair: {self.say!r}")
        if (self.shape not in ("", "curve") or self.fair) and self.against is None:
            raise ConfigError(f"shape and fair compare two cells, so the claim needs `against`: {self.say!r}")
        if (self.within or self.points or self.shape == "average") and self.published is None:
            raise ConfigError(f"within, points and average need the published figure: {self.say!r}")
        if self.between and len(self.between) != 2:
            raise ConfigError(f"between is [low, high], got {list(self.between)}: {self.say!r}")


@dataclass(frozen=True)
class Finding:
    """A claim with its figures.

    Attributes:
        claim: what was claimed.
        ours: the figure and its 95 % interval, one triple per workload and fleet (labels -> triple).
        verdict: holds, does not hold, shown; or of a fairer opponent: stands, weakens, flips.
        fair: as `ours`, with what `fair` changes; empty: it changes nothing.
    """

    claim: Claim
    ours: dict[tuple[str, str], tuple[float, float | None, float | None]]
    verdict: str
    fair: dict[tuple[str, str], tuple[float, float | None, float | None]] = field(default_factory=dict)


def judge(claim: Claim, cells: Mapping[Labels, Metrics]) -> Finding:
    """Judge a claim by the cells' figures.

    Raises:
        ConfigError: the claim names no cell, or several where one is meant.
    """
    ours = _figures(claim, claim.cell, claim.against, cells)
    if claim.fair:
        fair = _figures(claim, claim.fair.get("cell", claim.cell), claim.fair.get("against", claim.against), cells)
        return Finding(claim, ours, _survival(ours, fair), fair)
    values = [figure[0] for figure in ours.values()]
    if claim.shape == "curve":
        return Finding(claim, ours, "shown")
    return Finding(claim, ours, "holds" if _holds(claim, values) else "does not hold")


def _holds(claim: Claim, values: list[float]) -> bool:
    if claim.shape == "ahead":
        return min(values) > 1.0
    if claim.shape == "widens":
        return values[-1] > values[0]
    if claim.shape == "average":
        return _near(math.fsum(values) / len(values), claim.published, _AVERAGE_WITHIN)
    (value,) = values
    if claim.between:
        return claim.between[0] <= value <= claim.between[1]
    if claim.points:
        assert claim.published is not None, "checked when the claim was made"
        return abs(value - claim.published) <= claim.points * _HUNDREDTH
    return _near(value, claim.published, claim.within)


def _near(value: float, published: float | None, within: float) -> bool:
    assert published is not None, "checked when the claim was made"
    return abs(math.log(value / published)) <= math.log(within)


def _survival(ours: Mapping, fair: Mapping) -> str:
    """Say what a fairer opponent leaves of a lead: it flips where the interval of the factor lies below 1."""
    highest = [high if high is not None else value for value, _, high in fair.values()]
    if max(highest) < 1.0:
        return "flips"
    before, after = (sum(math.log(value) for value, *_ in figures.values()) for figures in (ours, fair))
    return "weakens" if after < _WEAKENED * before else "stands"


def _figures(
    claim: Claim, cell: Mapping[str, str], against: Mapping[str, str] | None, cells: Mapping[Labels, Metrics]
) -> dict:
    own = _chosen(claim, cell, cells)
    if against is None:
        return {place: _mean(metrics[claim.metric]) for place, metrics in own.items()}
    # Only a workload or a fleet that `against` names itself may differ from the cell's.
    other = _chosen(claim, {**{k: v for k, v in cell.items() if k in _NAMES[:2]}, **against}, cells)
    result = {}
    for place, metrics in own.items():
        base = next(iter(other.values())) if len(other) == 1 else other[place]
        pair = (metrics[claim.metric], base[claim.metric])
        ratio = paired_ratio(*(pair if claim.metric in HIGHER_IS_BETTER else pair[::-1]))
        if ratio[0] is None:
            raise ConfigError(f"{claim.say!r}: {claim.metric} has no value in {place}")
        result[place] = ratio
    return result


def _mean(values: Sequence[float | None]) -> tuple[float | None, float | None, float | None]:
    return paired_difference(values, [0.0] * len(values))


def _chosen(claim: Claim, wanted: Mapping[str, str], cells: Mapping[Labels, Metrics]) -> dict:
    """Return (workload, fleet) -> the one cell there that carries the wanted labels."""
    found: dict[tuple[str, str], Metrics] = {}
    for labels, metrics in cells.items():
        if all(labels[_NAMES.index(name)] == value for name, value in wanted.items()):
            if labels[:2] in found:
                raise ConfigError(f"{claim.say!r}: {dict(wanted)} names several cells of {labels[:2]}")
            found[labels[:2]] = metrics
    if not found or (len(found) > 1 and not (claim.shape or claim.fair)):
        raise ConfigError(f"{claim.say!r}: {dict(wanted)} names {len(found)} cells; there are {sorted(cells)}")
    return found
