"""Searches for the smallest fleet and the highest load that keep an objective, as generators: they ask, others run.

A search yields a point (workers, or steps towards less load) and is sent the share of the requests that kept the
objective, one value per seed, the same seeds at every point (common random numbers). A fleet keeps it if the mean over
seeds is at least the share that is wanted. Ends of the 95 % interval: the smallest fleet of which that cannot be
excluded (upper end of the mean's interval), and the smallest of which it is sure (lower end). Bisection takes it that
more workers, and less load, never hurt; it finds a point that keeps the objective beside one that does not, and there
may be others.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass

from kvgym.harness.measure.statistics import paired_difference

Values = Sequence[float]
Keeps = Callable[[Values], bool]
STEP, MOST_STEPS = 1.02, 210
"""Load is searched in steps of 2 %, between 1/64 and 64 times what is given."""


@dataclass(frozen=True)
class Estimate:
    """A point, the ends of its 95 % interval, and what each seed by itself says; None: none within the limits."""

    value: float | None
    low: float | None = None
    high: float | None = None
    each: tuple[float | None, ...] = ()


def workers_needed(share: float, seeds: int, start: int, most: int) -> Generator[int, Values, Estimate]:
    """Return the smallest number of workers, at most `most`, that keep the objective for `share` of the requests.

    Args:
        share: wanted, 0 to 1.
        seeds: number of values that are sent.
        start: where the search begins.
        most: largest fleet.
    """
    mean, possible, sure, alone = _judges(share, seeds)
    value = yield from _first(mean, start, 1, most)
    near = most if value is None else value
    if seeds == 1:
        return Estimate(value, each=(value,))
    low = yield from _first(possible, near, 1, most)
    high = yield from _first(sure, near, 1, most)
    each = []
    for judge in alone:
        each.append((yield from _first(judge, near, 1, most)))
    return Estimate(value, low, high, tuple(each))


def load_kept(share: float, seeds: int) -> Generator[int, Values, Estimate]:
    """Return the highest load at which the objective is kept for `share` of the requests, as a factor on what is given.

    It asks for numbers of *slower* steps: `factor` says what load each stands for.
    """
    mean, possible, sure, _ = _judges(share, seeds)
    value = yield from _first(mean, 0, -MOST_STEPS, MOST_STEPS)
    near = MOST_STEPS if value is None else value
    if seeds == 1:
        return Estimate(factor(value))
    low = yield from _first(sure, near, -MOST_STEPS, MOST_STEPS)
    high = yield from _first(possible, near, -MOST_STEPS, MOST_STEPS)
    return Estimate(factor(value), factor(low), factor(high))


def factor(slower: int | None) -> float | None:
    """Return the factor on the load after so many steps of 2 % towards less of it."""
    return None if slower is None else STEP**-slower


def _judges(share: float, seeds: int) -> tuple[Keeps, Keeps, Keeps, list[Keeps]]:
    """Return who judges by the mean, by its upper and by its lower end, and by each seed alone."""

    def ends(values: Values) -> tuple[float, float, float]:
        mean, low, high = paired_difference(values, [share] * len(values))
        assert mean is not None
        return mean, mean if low is None else low, mean if high is None else high

    alone: list[Keeps] = [lambda values, i=i: values[i] >= share for i in range(seeds)]  # type: ignore[misc]
    return lambda v: ends(v)[0] >= 0, lambda v: ends(v)[2] >= 0, lambda v: ends(v)[1] >= 0, alone


def _first(keeps: Keeps, start: int, least: int, most: int) -> Generator[int, Values, int | None]:
    """Return the smallest number of `least` to `most` that keeps; steps from `start` double until they enclose it."""
    number, step = max(least, min(start, most)), 1
    if keeps((yield number)):
        kept = number
        while kept > least:
            number, step = max(kept - step, least), 2 * step
            if not keeps((yield number)):
                failing = number
                break
            kept = number
        else:
            return kept
    else:
        failing = number
        while True:
            if failing == most:
                return None
            number, step = min(failing + step, most), 2 * step
            if keeps((yield number)):
                kept = number
                break
            failing = number
    while kept - failing > 1:
        number = (kept + failing) // 2
        if keeps((yield number)):
            kept = number
        else:
            failing = number
    return kept
