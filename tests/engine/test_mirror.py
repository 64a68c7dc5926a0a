"""MirrorCache follows another tree; tests/differential compares it with CacheHandle through SGLang's own tree."""

from __future__ import annotations

import pytest

from controllers.eviction import EVICTION
from kvgym.engine.mirror import ROOT, MirrorCache
from kvgym.errors import SimulationError


def mirror(policy: str = "lru", capacity: int = 100, page_size: int = 1) -> MirrorCache:
    return MirrorCache(EVICTION.load(policy), capacity, page_size)


def grow(tree: MirrorCache, above: int, tokens: int) -> int:
    node = tree.add(above, tokens)
    tree.insert(node)
    return node


def test_evict__names_whole_leaves_children_first():
    tree = mirror()
    stem = grow(tree, ROOT, 10)
    leaf = grow(tree, stem, 5)
    assert tree.resident_tokens == 15
    assert tree.evict(12) == [(leaf, 0), (stem, 0)]
    assert tree.resident_tokens == 0
    tree.check()


def test_evict__rlt_cuts_a_tail_and_the_next_leaf_grows_from_there():
    tree = mirror("rlt", page_size=2)
    leaf = grow(tree, ROOT, 10)
    assert tree.evict(4) == [(leaf, 6)]
    grow(tree, leaf, 8)
    assert tree.resident_tokens == 14
    tree.check()


def test_split__the_lower_half_keeps_its_number():
    tree = mirror()
    first = grow(tree, ROOT, 10)
    below = grow(tree, first, 6)
    upper = tree.split(first, 4, [below])
    other = grow(tree, upper, 3)
    tree.check()
    assert tree.resident_tokens == 19
    assert tree.evict(6) == [(below, 0)]
    assert tree.evict(1) == [(first, 0)]
    assert tree.evict(1) == [(other, 0)]


def test_lock__keeps_a_path_until_it_is_released():
    tree = mirror()
    leaf = grow(tree, ROOT, 10)
    tree.lock(leaf)
    assert tree.evict(5) == []
    tree.unlock(leaf)
    assert tree.evict(5) == [(leaf, 0)]
    with pytest.raises(SimulationError, match="parted"):
        tree.unlock(leaf)


def test_nodes__are_used_again():
    tree = mirror(capacity=1000)
    numbers = set()
    for _ in range(500):
        leaf = grow(tree, ROOT, 10)
        numbers.add(leaf)
        tree.evict(10)
    assert len(numbers) < 64
