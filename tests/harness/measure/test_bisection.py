from __future__ import annotations

import math

import pytest

from kvgym.harness.measure.bisection import MOST_STEPS, STEP, factor, load_kept, workers_needed


def answer(search, share_of):
    """Return what a search finds, and the points that it asked for."""
    asked = []
    point = next(search)
    while True:
        asked.append(point)
        try:
            point = search.send(share_of(point))
        except StopIteration as end:
            return end.value, asked


@pytest.mark.parametrize("start", [1, 4, 30, 64])
@pytest.mark.parametrize("needed", [1, 2, 3, 5, 17, 63, 64])
def test_workers__every_boundary_from_every_start(needed, start):
    found, asked = answer(workers_needed(0.9, 1, start, 64), lambda n: [1.0 if n >= needed else 0.0])
    assert (found.value, found.each, found.low, found.high) == (needed, (needed,), None, None)
    assert len(asked) == len(set(asked)) <= 2 * math.log2(64) + 2


def test_workers__none_is_enough():
    found, asked = answer(workers_needed(0.9, 1, 4, 10), lambda n: [0.5])
    assert found.value is None and max(asked) == 10


def test_workers__interval_and_each_seed():
    """Three seeds need 4, 5 and 6 workers; with n workers each keeps 0.9 + 0.01 * (n - its need)."""
    found, _ = answer(workers_needed(0.9, 3, 2, 64), lambda n: [0.9 + 0.01 * (n - need) for need in (4, 5, 6)])
    assert (found.value, found.each) == (5, (4, 5, 6))
    # half the 95 % interval is 4.3027 * 0.01 / sqrt(3) = 0.0248: 2.48 workers
    assert (found.low, found.high) == (3, 8)


def test_workers__more_than_was_tried():
    found, _ = answer(workers_needed(0.9, 2, 2, 6), lambda n: [0.9 + 0.01 * (n - need) for need in (5, 7)])
    assert (found.value, found.low, found.high, found.each) == (6, 1, None, (5, None))


@pytest.mark.parametrize("limit", [0.05, 0.4, 0.99, 1.0, 1.5, 30.0])
def test_load__within_two_percent(limit):
    found, asked = answer(load_kept(0.9, 1), lambda slower: [1.0 if factor(slower) <= limit * (1 + 1e-9) else 0.0])
    assert limit / STEP < found.value <= limit * (1 + 1e-9) and len(asked) < 20


def test_load__the_limits_of_the_search():
    assert answer(load_kept(0.9, 1), lambda slower: [1.0])[0].value == pytest.approx(STEP**MOST_STEPS)
    assert answer(load_kept(0.9, 1), lambda slower: [0.0])[0].value is None


def test_load__interval():
    found, _ = answer(load_kept(0.9, 2), lambda slower: [0.9 - 0.01 * (factor(slower) - limit) for limit in (1.9, 2.1)])
    assert found.low < found.value < found.high and 1.9 < found.value < 2.1
