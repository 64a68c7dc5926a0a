"""One cache by hand: what match, insert, lock and evict do, and when they refuse."""

from __future__ import annotations

import re

import numpy as np
import pytest

from controllers.eviction import EVICTION
from kvgym.engine.cache.integrity import RULES
from kvgym.engine.handle import CacheHandle
from kvgym.errors import SimulationError
from kvgym.forest.forest import Forest

PAGE = 16


def make(capacity: int = 320, page: int = 1, policy: str = "lru", workers: int = 1) -> tuple[CacheHandle, list[int]]:
    """A cache and the nodes of "aaaaaaaa", "aaaabbbb" and "cccccccc" (a letter is a page)."""
    forest = Forest(page)
    nodes = [forest.insert([c for c in word.encode() for _ in range(page)]) for word in ("a" * 8, "aaaabbbb", "c" * 8)]
    return CacheHandle(forest.nodes, EVICTION.load(policy), capacity, page, workers), nodes


@pytest.mark.parametrize("page", [1, PAGE])
def test_match__finds_the_longest_prefix_and_splits_there(page: int) -> None:
    cache, (a, b, c) = make(page=page)
    assert cache.insert(0, a, 8 * page) == 0
    assert cache.match(0, c, 8 * page) == (0, 0)  # nothing: the root
    found, slot = cache.match(0, b, 8 * page)
    assert found == 4 * page and slot != 0
    record = cache.cache.slots[slot]
    assert (record["d0"], record["d1"], record["children"]) == (0, 4 * page, 1)
    assert cache.insert(0, b, 8 * page) == 4 * page
    assert cache.cache.slots[slot]["children"] == 2
    assert cache.resident_tokens(0) == 12 * page
    cache.check()


def test_peek__changes_nothing() -> None:
    cache, (a, b, _) = make()
    cache.insert(0, a, 8)
    before = [array.tobytes() for array in cache.cache]
    path = cache.cache.path.tobytes()
    assert [cache.peek(0, b, tokens) for tokens in (0, 3, 4, 8)] == [0, 3, 4, 4]
    cache.cache.path[:] = np.frombuffer(path, np.int32)  # scratch
    assert [array.tobytes() for array in cache.cache] == before


def test_match__of_nothing_touches_nothing() -> None:
    cache, (a, _, _) = make()
    cache.insert(0, a, 8)
    accesses = cache.cache.slots["access"].copy()
    assert cache.match(0, a, 0) == (0, 0)
    assert (cache.cache.slots["access"] == accesses).all()


def test_lock__protects_the_path_to_the_root() -> None:
    cache, (a, b, c) = make()
    for node in (a, b, c):
        cache.insert(0, node, 8)
    slot = cache.match(0, b, 8)[1]
    cache.lock(0, slot)
    assert (cache.protected_tokens(0), cache.evictable_tokens(0)) == (8, 12)
    assert cache.evict(0, 100) == 12
    assert cache.match(0, b, 8)[0] == 8
    cache.lock(0, slot)
    cache.unlock(0, slot)
    assert cache.protected_tokens(0) == 8  # held twice, released once
    cache.unlock(0, slot)
    assert cache.evict(0, 100) == 8
    cache.check()


def test_lock__survives_a_split_below_and_above() -> None:
    cache, (a, b, _) = make()
    cache.insert(0, a, 8)
    slot = cache.match(0, a, 8)[1]
    cache.lock(0, slot)
    cache.match(0, b, 8)  # splits the locked slot at 4
    assert cache.protected_tokens(0) == 8
    cache.check()
    cache.unlock(0, slot)
    assert cache.evictable_tokens(0) == 8
    cache.check()


def test_workers__do_not_share_anything() -> None:
    cache, (a, b, _) = make(workers=3)
    cache.insert(1, a, 8)
    cache.insert(2, b, 6)
    assert [cache.peek(w, a, 8) for w in range(3)] == [0, 8, 4]
    assert [cache.free_tokens(w) for w in range(3)] == [320, 312, 314]
    assert cache.evict(2, 6) == 6
    assert [cache.peek(w, a, 8) for w in range(3)] == [0, 8, 0]
    cache.check()


def test_handle__refuses_misuse() -> None:
    cache, (a, _, c) = make(capacity=10)
    cache.insert(0, a, 8)
    with pytest.raises(SimulationError, match="insert needs 8 tokens but 2 are free on worker 0; evict first"):
        cache.insert(0, c, 8)
    slot = cache.match(0, a, 8)[1]
    with pytest.raises(SimulationError, match="is not locked"):
        cache.unlock(0, slot)


@pytest.mark.parametrize(
    ("rule", "where", "fields"),
    [
        (1, "workers", ["free"]),
        (2, "workers", ["free", "private"]),  # the sum still agrees
        (3, "inner", ["d1"]),
        (4, "leaf", ["first"]),
        (5, "leaf", ["lock"]),
        (6, "leaf", ["pos"]),
        (7, "inner", ["children"]),
        (8, "workers", ["free", "evictable"]),
        (9, "clock", ["free_slots"]),
    ],
)
def test_check__names_the_broken_rule(rule: int, where: str, fields: list[str]) -> None:
    """A leaf, its parent or a counter is off by one; the check sees it and says what it is."""
    cache, (a, b, _) = make()
    cache.insert(0, a, 8)
    cache.insert(0, b, 8)
    cache.check()
    if where in ("leaf", "inner"):
        array, index = cache.cache.slots, cache.match(0, a, 8 if where == "leaf" else 4)[1]
    else:
        array, index = getattr(cache.cache, where), 0
    for field, change in zip(fields, (1, -1), strict=False):
        array[field][index] += change
    with pytest.raises(SimulationError, match=f"on worker 0: {re.escape(RULES[rule])}"):
        cache.check()


def test_growth__many_slots_and_leaves() -> None:
    """2,000 leaves on two workers outgrow the first arrays several times over; nothing is lost."""
    forest = Forest()
    nodes = [forest.insert([i, i + 1, i % 7]) for i in range(0, 8000, 4)]
    cache = CacheHandle(forest.nodes, EVICTION.load("lru"), 10_000, workers=2)
    for i, node in enumerate(nodes):
        cache.insert(i % 2, node, 3)
    cache.check()
    assert [cache.peek(i % 2, node, 3) for i, node in enumerate(nodes)] == [3] * len(nodes)
    assert [cache.peek(1 - i % 2, node, 3) for i, node in enumerate(nodes)] == [0] * len(nodes)
    assert cache.evict(0, 1500) == 1500  # the oldest go first
    assert [cache.peek(i % 2, node, 3) for i, node in enumerate(nodes)] == [0, 3] * 500 + [3, 3] * 500
    cache.check()
