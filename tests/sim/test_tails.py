"""Token-wise eviction: the two ways of dropping pages are one."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from controllers.eviction import EVICTION
from kvgym.sim import tails
from kvgym.sim.handle import CacheHandle
from kvgym.workloads.forest import Forest


def cached(leaves: list[int], stem: int, page: int, seed: int) -> CacheHandle:
    """A cache with leaves of so many pages, the even ones below a common stem; all are candidates."""
    forest = Forest(page)
    nodes = []
    for i, pages in enumerate(leaves):
        above = [0] * (stem * page) if i % 2 == 0 else []
        nodes.append((forest.insert([*above, *[i + 1] * (pages * page)]), len(above) + pages * page))
    cache = CacheHandle(forest.nodes, EVICTION.load("random_leaf"), 10_000 * page, page, seed=seed)
    for node, tokens in nodes:
        cache.insert(0, node, tokens)
    return cache


def contents(cache: CacheHandle) -> tuple[Any, ...]:
    worker, table = cache.cache.workers[0], cache.cache.table
    fields = ["node", "first", "d0", "d1", "children", "pos", "parent"]
    slots = np.asarray(cache.cache.slots)[fields][np.sort(table[table >= 0])]
    return slots.tolist(), worker.tolist(), cache.cache.order[0, : worker["leaves"]].tolist(), cache.cache.rng.tolist()


@pytest.mark.parametrize("page", [1, 16])
def test_drop__few_and_many_make_the_same_draws(page: int) -> None:
    @settings(max_examples=150, deadline=None, database=None, derandomize=True, suppress_health_check=list(HealthCheck))
    @given(
        st.lists(st.integers(1, 6), min_size=1, max_size=7), st.integers(0, 3), st.integers(0, 40), st.integers(0, 99)
    )
    def check(leaves: list[int], stem: int, pages: int, seed: int) -> None:
        few, many = cached(leaves, stem, page, seed), cached(leaves, stem, page, seed)
        assert contents(few) == contents(many)
        one, other = tails.drop_few(few.cache, 0, pages), tails.drop_many(many.cache, 0, pages)
        assert tuple(one) == tuple(other)
        assert contents(few) == contents(many)
        assert few.cache.workers["evicted"][0] == one[0] * page <= pages * page

    check()


def test_drop__stops_at_a_parent_that_becomes_a_leaf() -> None:
    """The caller decides whether the parent is a candidate; the pages that are left come in the next call."""
    forest = Forest()
    whole, stem = forest.insert([0, 0, 0, 1, 1]), forest.insert([0, 0, 0])
    cache = CacheHandle(forest.nodes, EVICTION.load("random_leaf"), 100)
    cache.insert(0, whole, 5)
    cache.insert(0, stem, 3)
    dropped, parent = tails.drop_pages(cache.cache, 0, 4)
    assert dropped == 2
    assert (cache.cache.slots["d0"][parent], cache.cache.slots["d1"][parent]) == (0, 3)
    assert cache.cache.workers["leaves"][0] == 0
