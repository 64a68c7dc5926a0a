from __future__ import annotations

import numpy as np
import pytest

from controllers.routing.cache_aware_014 import CacheAware014
from kvgym.types import FleetSpec
from kvgym.workloads.forest import Forest


@pytest.fixture
def router(fleet):
    router = CacheAware014()
    router.reset(fleet(3), 0)
    return router


def test_defaults__are_those_of_the_paper(router):
    assert (router.cache_threshold, router.balance_abs, router.balance_rel) == (0.5, 32, 1.0001)
    assert (router.max_tree_chars, router.evict_every_s) == (16777216, 60.0)


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


def test_hit__order_of_holders_is_fixed_per_node_and_even_over_nodes():
    forest = Forest()
    nodes = forest.add_nodes(np.zeros(900, np.int64), np.full(900, 50), np.full(900, 200))
    router = CacheAware014()
    router.reset(FleetSpec(3, (1000,) * 3, 1, forest), 1)
    for node in nodes.tolist():
        for worker in range(3):
            router.tree.insert(worker, node, 0.0)
    everyone = np.arange(3)
    firsts = np.array([router._first_in_map(node, everyone) for node in nodes.tolist()])
    assert abs(np.bincount(firsts, minlength=3) - 300).max() < 75
    again = [router._first_in_map(node, everyone) for node in nodes.tolist()]
    assert again == firsts.tolist()
    # A map that loses an entry keeps the order of the rest.
    for node, first in zip(nodes.tolist(), firsts.tolist(), strict=True):
        other = np.array([worker for worker in range(3) if worker != (first + 1) % 3])
        assert router._first_in_map(node, other) == first


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
