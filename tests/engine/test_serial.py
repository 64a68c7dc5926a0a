"""Serving without a scheduler: the same loads as a cache driven by hand."""

from __future__ import annotations

import numpy as np
import pytest

from controllers.eviction import EVICTION
from kvgym.engine.handle import CacheHandle
from kvgym.forest.forest import Forest
from kvgym.theory.instances import Instance
from kvgym.theory.ratios import play


def words(count: int, batch: int = 1) -> Instance:
    """Queries drawn from twelve prompts of three lengths below three stems."""
    forest = Forest()
    prompts = [[i % 3, i % 2, *([i] * (3 + i % 4))] for i in range(12)]
    for prompt in prompts:
        forest.insert(prompt)
    nodes = np.array([forest.insert(prompt) for prompt in prompts], np.int64)
    tokens = np.array([len(prompt) for prompt in prompts], np.int64)
    queries = np.random.default_rng(1).integers(12, size=count)
    return Instance(20, forest, nodes, tokens, queries, 0, batch)


@pytest.mark.parametrize("policy", ["lru", "lfu", "rlt", "random_leaf"])
def test_serve__as_by_hand(policy: str) -> None:
    instance = words(300)
    cache = CacheHandle(instance.forest.nodes, EVICTION.load(policy), instance.capacity, seed=5)
    loads = 0
    for q in instance.queries.tolist():
        node, tokens = int(instance.nodes[q]), int(instance.tokens[q])
        found, slot = cache.match(0, node, tokens)
        cache.lock(0, slot)
        cache.evict(0, tokens - found - cache.free_tokens(0))
        cache.insert(0, node, tokens)
        cache.unlock(0, slot)
        loads += tokens - found
    assert play(instance, policy, 5)[0] == loads


def test_serve__a_batch_is_matched_before_it_is_loaded() -> None:
    """A prompt twice in one batch is loaded twice (and kept once), in two batches once."""
    instance = words(4)
    twice = Instance(20, *(instance.forest, instance.nodes, instance.tokens), np.array([3, 3, 3, 3]), 0, 2)
    assert play(twice, "lru", 0)[0] == 2 * instance.tokens[3]


def test_serve__a_batch_that_does_not_fit_is_loaded_in_parts() -> None:
    instance = words(40, batch=12)
    assert not instance.fits
    assert play(instance, "lru", 0)[0] >= instance.tokens[np.unique(instance.queries)].max()
