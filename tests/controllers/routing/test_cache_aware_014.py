from __future__ import annotations

import numpy as np
import pytest

from controllers.routing.cache_aware_014 import CacheAware014


@pytest.fixture
def router(start):
    return start(CacheAware014(), 3)


def test_threshold__is_strict(router, ask):
    router.tree.insert(2, 1, 0.0)
    router.tree.insert(2, 5, 0.0)
    assert router.act(ask(2, [0, 0, 0], 1.0, prompt_chars=800)) != 2
    router.reset(router.spec, 0)
    router.tree.insert(2, 1, 0.0)
    router.tree.insert(2, 5, 0.0)
    assert router.act(ask(2, [0, 0, 0], 1.0, prompt_chars=799)) == 2


def test_miss__goes_to_the_smallest_tree_whatever_its_queue(router, ask):
    router.tree.insert(0, 1, 0.0)
    router.tree.insert(1, 6, 0.0)
    router.tree.insert(2, 4, 0.0)
    assert router.act(ask(2, [0, 30, 0], 1.0, prompt_chars=2000)) == 1


def test_miss__cold_fleet_is_filled_evenly(router, ask):
    assert sorted(router.act(ask(node, [0, 0, 0])) for node in (6, 4, 1)) == [0, 1, 2]


def test_imbalance__takes_the_fewest_in_flight(router, ask):
    router.tree.insert(0, 2, 0.0)
    assert router.act(ask(2, [32, 0, 5], 1.0)) == 0
    assert router.act(ask(2, [33, 0, 5], 1.0)) == 1


def test_hit__holder_is_drawn_evenly_per_decision_and_repeats_with_the_seed(router, ask):
    picks = []
    for _ in range(2):
        router.reset(router.spec, 1)
        for worker in range(3):
            router.tree.insert(worker, 2, 0.0)
        picks.append([router.act(ask(2, [0, 0, 0], 1.0)) for _ in range(600)])
    assert picks[0] == picks[1]
    assert abs(np.bincount(picks[0], minlength=3) - 200).max() < 60


def test_hit__lookup_refreshes_the_worker_it_found_even_if_another_is_chosen(router, ask):
    router.tree.insert(0, 1, 0.0)
    router.tree.insert(0, 5, 1.0)
    assert router.act(ask(1, [0, 0, 0], 2.0, prompt_chars=900)) != 0
    router.tree.evict(500)
    assert router.tree.tagged(1)[0]
    assert not router.tree.tagged(5)[0]


def test_mask__other_holders_then_smallest_tree(router, ask):
    router.tree.insert(0, 2, 0.0)
    router.tree.insert(1, 2, 0.0)
    router.tree.insert(1, 5, 0.0)
    assert router.act(ask(2, [0, 0, 0], 1.0, mask=[False, True, True])) == 1
    assert router.act(ask(2, [0, 0, 0], 1.0, mask=[False, False, True])) == 2
