"""Competitive ratios: the optimum against brute force, small instances against formulas, and what the theorems say."""

from __future__ import annotations

import itertools
import math
from functools import partial
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvgym.forest.forest import Forest
from kvgym.theory import ratios
from kvgym.theory.instances import STEM_TOKENS, Instance, batches, hot_sets, star, unbalanced
from kvgym.theory.ratios import POLICIES, measure, optimal_loads, play

Token = tuple[int, int]
RNG = np.random.default_rng(0)


def harmonic(n: int) -> float:
    return sum(1 / i for i in range(1, n + 1))


def path_of(instance: Instance, query: int) -> list[Token]:
    """The tokens of a query as (forest node, offset in it), root first."""
    nodes, node, path = instance.forest.nodes, int(instance.nodes[query]), []
    while node > 0:
        length = int(nodes["end"][node] - nodes["start"][node])
        path = [(node, offset) for offset in range(length)] + path
        node = int(nodes["parent"][node])
    return path


def searched_loads(instance: Instance) -> int:
    """The fewest loads after the dropped queries, over every prefix-closed content that the pool can have."""
    paths = {query: path_of(instance, query) for query in range(len(instance.nodes))}
    above = {path[i]: path[i - 1] for path in paths.values() for i in range(1, len(path))}
    best: dict[frozenset[Token], int] = {frozenset(): 0}
    for start in range(0, len(instance.queries), instance.batch):
        batch = [paths[query] for query in instance.queries[start : start + instance.batch].tolist()]
        needed = frozenset(token for path in batch for token in path)
        following: dict[frozenset[Token], int] = {}
        for held, paid in best.items():
            counted = paid + len(needed - held) * (start >= instance.dropped)
            spare = sorted(held - needed)
            for size in range(min(len(spare), instance.capacity - len(needed)) + 1):
                for kept in itertools.combinations(spare, size):
                    content = needed | frozenset(kept)
                    if all(above.get(token) is None or above[token] in content for token in kept):
                        following[content] = min(counted, following.get(content, counted))
        best = following
    return min(best.values())


@st.composite
def instances(draw: st.DrawFn) -> Instance:
    """Words over two letters, at most 4 letters each, in a pool that holds the longest."""
    words = draw(st.lists(st.lists(st.integers(0, 1), min_size=1, max_size=4), min_size=2, max_size=4))
    forest = Forest()
    for word in words:
        forest.insert(word)
    nodes = [forest.insert(word) for word in words]  # again: a later word may have split an earlier node
    tokens = np.array([len(word) for word in words], np.int64)
    queries = draw(st.lists(st.integers(0, len(words) - 1), min_size=1, max_size=9))
    capacity = draw(st.integers(max(map(len, words)), max(map(len, words)) + 3))
    return Instance(capacity, forest, np.array(nodes, np.int64), tokens, np.array(queries, np.int64), 0)


@settings(max_examples=150, deadline=None)
@given(instances())
def test_optimal_loads__equal_the_best_of_every_course(instance: Instance) -> None:
    assert optimal_loads(instance, instance.queries) == searched_loads(instance)


@settings(max_examples=40, deadline=None)
@given(instances())
def test_play__no_policy_loads_less_than_the_optimum(instance: Instance) -> None:
    best = optimal_loads(instance, instance.queries)
    for policy in POLICIES:
        loads, queries = play(instance, policy, 1)
        assert loads >= best
        np.testing.assert_array_equal(queries, instance.queries)


@pytest.mark.parametrize("batch", [1, 2, 3])
def test_optimal_loads__of_batches_that_fit(batch: int) -> None:
    instance = batches(3, 1, batch, 2, RNG)
    assert instance.fits
    assert optimal_loads(instance, instance.queries) == searched_loads(instance)


def test_optimal_loads__of_batches_that_do_not_fit_are_those_of_single_queries() -> None:
    instance = batches(3, 2, 4, 5, RNG)
    assert not instance.fits
    alone = Instance(instance.capacity, *instance_parts(instance), instance.dropped)
    assert optimal_loads(instance, instance.queries) == optimal_loads(alone, alone.queries)


def instance_parts(instance: Instance) -> tuple[Any, ...]:
    return instance.forest, instance.nodes, instance.tokens, instance.queries


def test_star__by_hand() -> None:
    """Two of three leaves fit. LRU loads each; the optimum loads every second one: A B C, keep B, A, keep C ..."""
    instance = star(2, "cyclic", 4, RNG)
    assert instance.capacity == STEM_TOKENS + 2
    assert instance.queries.tolist() == [0, 1, 2] * 5
    assert play(instance, "lru", 0)[0] == 12
    assert optimal_loads(instance, instance.queries) == 6


def test_hot_sets__lru_loads_each_set_once_a_turn() -> None:
    """Of the n - 1 leaves of the other set one still fits beside these n - 1, so the optimum keeps one."""
    instance = hot_sets(8, 5, 6, RNG)
    assert play(instance, "lru", 0)[0] == 6 * 7
    assert optimal_loads(instance, instance.queries) == 6 * 6


def test_unbalanced__is_one_token_longer_than_the_room() -> None:
    instance = unbalanced(16, 3, RNG)
    assert instance.tokens.sum() - STEM_TOKENS * len(instance.tokens) == 17
    assert instance.capacity == STEM_TOKENS + 16


@pytest.mark.parametrize(("policy", "best"), [("lru", 6), ("mru", 0)])
def test_play__an_adversary_makes_every_query_a_load(policy: str, best: int) -> None:
    """Of LRU it asks for the leaves in turn, of MRU for two alternately: both would have fitted."""
    instance = star(8, "cyclic", 6, RNG)
    loads, queries = play(instance, policy, 0, defied=True)
    assert loads == len(queries) - instance.dropped
    assert optimal_loads(instance, queries) == best


@pytest.fixture(scope="module")
def results() -> dict[str, Any]:
    return measure(sizes=(8, 16, 64), seeds=4, cycles=500)


def ratios_of(results: dict[str, Any], instance: str, policy: str, key: str = "n") -> dict[int, dict[str, Any]]:
    rows = [row for row in results["ratios"] if (row["instance"], row["policy"]) == (instance, policy)]
    return {row[key]: row for row in rows}


def test_measure__cyclic_star(results: dict[str, Any]) -> None:
    for n in (8, 16, 64):
        of = {policy: ratios_of(results, "cyclic star", policy)[n]["ratio"] for policy in POLICIES}
        assert of["lru"] == pytest.approx(n, rel=0.01)
        assert of["rlt"] == pytest.approx(harmonic(n), rel=0.03)
        assert of["random_leaf"] == pytest.approx(2 * n / (n + 1), rel=0.05)  # the next of n leaves, uniformly


def test_measure__random_star_is_the_same_for_all(results: dict[str, Any]) -> None:
    for n in (8, 16, 64):
        rows = [ratios_of(results, "random star", policy)[n] for policy in ("lru", "rlt", "random_leaf")]
        assert all(a["low"] <= b["high"] for a, b in itertools.permutations(rows, 2))
        assert all(row["ratio"] == pytest.approx(harmonic(n), rel=0.1) for row in rows)


def test_measure__hot_sets_need_marks(results: dict[str, Any]) -> None:
    marked, blind = (ratios_of(results, "hot sets", policy) for policy in ("rlt", "random_leaf"))
    assert marked[16]["ratio"] == pytest.approx(1.12, abs=0.02)
    assert blind[16]["ratio"] == pytest.approx(2.7, abs=0.15)
    assert all(marked[n]["ratio"] <= 1.2 for n in (16, 64))
    gaps = [blind[n]["ratio"] - marked[n]["ratio"] for n in (8, 16, 64)]
    assert gaps == sorted(gaps) and gaps[0] > 0.5


def test_measure__unbalanced_lengths_ruin_whole_leaves(results: dict[str, Any]) -> None:
    assert ratios_of(results, "unbalanced", "lru")[64]["ratio"] > 50
    assert ratios_of(results, "unbalanced", "random_leaf")[64]["ratio"] > 10
    assert ratios_of(results, "unbalanced", "rlt")[64]["ratio"] < 3


def test_measure__an_adversary_makes_deterministic_policies_pay_n(results: dict[str, Any]) -> None:
    for policy in ("lru", "lfu", "fifo", "slru"):
        for n, row in ratios_of(results, "adversary", policy).items():
            assert row["ratio"] == pytest.approx(n, rel=0.04)
    assert {row["ratio"] for row in ratios_of(results, "adversary", "mru").values()} == {None}


def test_measure__batches(results: dict[str, Any]) -> None:
    """RLT stays below H(n) of the prompts that it can choose from while each batch fits."""
    kept, violated = (ratios_of(results, f"batches, condition {word}", "rlt", "batch") for word in ("kept", "violated"))
    assert list(kept) == [1, 8, 16, 32, 48, 60, 64] and list(violated) == [65]
    assert all(row["ratio"] <= 1.03 * harmonic(row["n"]) for row in kept.values())
    lru = ratios_of(results, "batches, condition kept", "lru", "batch")
    assert all(lru[batch]["ratio"] == pytest.approx(64 / batch, rel=0.02) for batch in (1, 8, 16, 32))
    assert kept[64]["ratio"] == pytest.approx(1.0) and violated[65]["ratio"] > 1.5


def test_measure__fits(results: dict[str, Any]) -> None:
    assert results["fits"]["rlt"]["r_squared"] >= 0.98
    assert results["fits"]["rlt"]["slope"] == pytest.approx(1.0, abs=0.1)
    assert results["fits"]["lru"]["slope"] == pytest.approx(1.0, abs=0.01)


def test_fits__of_a_straight_line() -> None:
    row = partial(ratios.Ratio, "cyclic star", batch=1, low=None, high=None)
    made = [row(policy=p, n=n, ratio=2 + 3 * f(n)) for n in (4, 8, 16) for p, f in (("rlt", math.log), ("lru", float))]
    for fit in ratios.fits(made).values():
        assert fit == {"slope": pytest.approx(3), "offset": pytest.approx(2), "r_squared": pytest.approx(1)}
