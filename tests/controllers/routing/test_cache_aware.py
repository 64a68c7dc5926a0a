from __future__ import annotations

import pytest

from controllers.routing.cache_aware import CacheAware


@pytest.fixture
def router(start):
    return start(CacheAware(), 3)


def test_hit__goes_to_the_longest_match(router, ask):
    router.tree.insert(1, 1, 0.0)
    router.tree.insert(2, 2, 0.0)
    assert router.act(ask(2, [0, 10, 40], 1.0)) == 2


def test_hit__several_longest_matches_go_to_the_first_holder(router, ask):
    for worker in (2, 0, 1):
        router.tree.insert(worker, 1, 0.0)
    assert [router.act(ask(1, [0, 5, 9], 1.0)) for _ in range(5)] == [2] * 5


def test_threshold__must_be_exceeded(router, ask):
    router.tree.insert(2, 1, 0.0)
    assert router.act(ask(1, [0, 0, 5], prompt_chars=1333)) == 2
    router.cache_threshold = 0.25
    assert router.act(ask(1, [0, 0, 5], prompt_chars=1600)) == 0


def test_miss__goes_to_the_fewest_in_flight_first_in_list(router, ask):
    assert router.act(ask(2, [4, 1, 1])) == 1


def test_prompt__is_inserted_where_it_went(router, ask):
    router.act(ask(2, [1, 0, 1]))
    assert router.tree.match_chars(2).tolist() == [0, 800, 0]


def test_imbalance__beats_a_full_match(router, ask):
    router.tree.insert(0, 2, 0.0)
    assert router.act(ask(2, [64, 0, 3], 1.0)) == 0
    assert router.act(ask(2, [65, 0, 3], 1.0)) == 1
    assert router.tree.match_chars(2).tolist() == [800, 800, 0]


def test_imbalance__needs_the_ratio_too(router, ask):
    router.tree.insert(0, 2, 0.0)
    assert router.act(ask(2, [300, 200, 220], 1.0)) == 0
    assert router.act(ask(2, [301, 200, 220], 1.0)) == 1


def test_mask__hit_on_a_masked_worker_takes_the_first_allowed_and_inserts_nothing(router, ask):
    router.tree.insert(2, 2, 0.0)
    assert router.act(ask(2, [0, 9, 0], 1.0, mask=[False, True, False])) == 1
    assert router.tree.match_chars(2).tolist() == [0, 0, 800]


def test_tree__is_trimmed_every_minute(start, ask):
    router = start(CacheAware(max_tree_chars=500), 1)
    router.act(ask(2, [0], 10.0))
    assert router.tree.chars.tolist() == [800]
    router.act(ask(6, [0], 61.0))
    assert router.tree.chars.tolist() == [440]
