"""Token-wise eviction: counting the draws at once has the distribution of making them one by one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from controllers.eviction import EVICTION
from kvgym.engine.cache import tails
from kvgym.engine.handle import CacheHandle
from kvgym.forest.forest import Forest

PATHS = ([0, 0, 1, 1], [0, 0, 2, 2, 2], [3, 3, 3, 3], [4], [0, 0, 1, 1, 5])
"""A stem of two with two branches, one of which has grown by another token; two leaves that stand alone."""


@pytest.fixture
def cached() -> Callable[..., Any]:
    def make(page: int, seed: int) -> tuple[CacheHandle, list[tuple[int, int]]]:
        forest = Forest(page)
        nodes = [(forest.insert(np.repeat(path, page)), len(path) * page) for path in PATHS]
        cache = CacheHandle(forest.nodes, EVICTION.load("rlt"), 100 * page, page, seed=seed)
        for node, tokens in nodes:
            cache.insert(0, node, tokens)
        worker = cache.cache.workers
        worker["epoch"][0] += 1  # a new phase: nothing is marked
        worker["marked"][0], worker["unmarked"][0] = 0, worker["leaves"][0]
        return cache, nodes

    return make


def drop(cache: CacheHandle, function: Any, pages: int) -> None:
    worker, page = cache.cache.workers[0], cache.cache.options[0]["page"]
    goal = pages * page
    while worker["evicted"] < goal:
        function(cache.cache, 0, int(goal - worker["evicted"]) // page)
    assert worker["evicted"] == goal


@pytest.mark.parametrize(("page", "pages"), [(1, 5), (1, 9), (16, 7), (1, 11)])
def test_drop__many_at_once_are_as_one_by_one(cached: Any, page: int, pages: int) -> None:
    """Two-sample chi-square over what is left of each path; 6 standard deviations above its mean."""
    cache, nodes = cached(page, 1)
    start, words = cache.cache, np.random.default_rng(0)
    seen: list[Counter[tuple[int, ...]]] = []
    for function in (tails.drop_few, tails.drop_many):
        counts: Counter[tuple[int, ...]] = Counter()
        for _ in range(1500):
            cache.cache = type(start)(*(array.copy() for array in start))
            cache.cache.rng[0] = words.integers(1, 2**63, dtype=np.uint64)
            drop(cache, function, pages)
            counts[tuple(cache.peek(0, *prefix) // page for prefix in nodes)] += 1
        cache.check()
        seen.append(counts)
    few, many = seen
    common = [left for left in few | many if few[left] + many[left] >= 10]
    squares = sum((few[left] - many[left]) ** 2 / (few[left] + many[left]) for left in common)
    assert len(common) >= 5
    assert squares < len(common) + 6 * np.sqrt(2 * len(common))


def test_spread__is_uniform_and_complete(cached: Any) -> None:
    cache, _ = cached(1, 1)
    n, total = int(cache.cache.workers["unmarked"][0]), np.zeros(3)
    assert n == len(total) + 1
    rows = []
    for _ in range(400):
        tails.spread(cache.cache, 0, 1000)
        rows.append(cache.cache.scratch[:n].copy())
        assert rows[-1].sum() == 1000 and rows[-1].min() >= 0
    picks = np.array(rows)
    assert ((picks.sum(axis=0) - 100_000) ** 2 / 100_000).sum() < 16.3  # chi-square with 3 degrees: p = .001
    assert 2.4 < ((picks - 250) ** 2 / 250).sum(axis=1).mean() < 3.6  # a multinomial's spread


@pytest.mark.parametrize(("a", "n"), [(0, 3), (1, 3), (2, 3), (4, 5), (1, 2)])
def test_binomial__mean_and_spread(a: int, n: int) -> None:
    counter, draws = np.uint64(7), []
    with np.errstate(over="ignore"):
        for _ in range(2000):
            counter, won = tails.binomial(counter, 90, a, n)
            counter = np.uint64(counter)
            draws.append(int(won))
    p = a / n
    assert np.mean(draws) == pytest.approx(90 * p, abs=5 * np.sqrt(90 * p * (1 - p) / 2000))
    assert np.var(draws) == pytest.approx(90 * p * (1 - p), rel=0.2)
