from __future__ import annotations

import numpy as np
import pytest

from controllers.accounts.cache_model import CacheModel
from kvgym.forest.forest import Forest
from kvgym.types import FleetSpec


def flat_spec(nodes, tokens, capacities):
    forest = Forest()
    forest.add_nodes(np.zeros(nodes, int), np.full(nodes, tokens), np.full(nodes, tokens))
    return FleetSpec(len(capacities), tuple(capacities), 1, forest)


def test_overfull__the_least_recently_used_prefix_goes_first():
    model = CacheModel(flat_spec(20, 100, [1000]))
    for node in range(1, 11):
        model.remember(0, node, float(node))
    model.remember(0, 1, 20.0)
    for node in (11, 12):
        model.remember(0, node, 20.0 + node)
    # 1,200 of 1,000 tokens are over an eighth too many: 2 and 3 go, 1 was refreshed
    assert [node for node in range(1, 13) if model.match_tokens(node)[0] == 0] == [2, 3]
    assert model.tokens.tolist() == [1000]


def test_path__loses_its_end_first(forest):
    model = CacheModel(FleetSpec(1, (200,), 1, forest))
    model.remember(0, 2, 1.0)
    model.remember(0, 3, 2.0)
    assert model.match_tokens(2).tolist() == [100]
    assert model.match_tokens(3).tolist() == [200]


def test_workers__have_their_own_capacities():
    model = CacheModel(flat_spec(100, 100, [500, 5000]))
    for node in range(1, 101):
        model.remember(0, node, float(node))
        model.remember(1, node, float(node))
    assert model.tokens[0] <= 500 * 9 // 8
    assert 5000 <= model.tokens[1] <= 5000 * 9 // 8


def test_model__holds_what_an_exact_lru_cache_holds_at_every_trim():
    rng, capacity = np.random.default_rng(0), 2000
    model, order = CacheModel(flat_spec(60, 100, [capacity])), {}
    for step in range(600):
        node = int(rng.integers(1, 61))
        before = int(model.tokens[0]) + (100 if model.match_tokens(node)[0] == 0 else 0)
        order.pop(node, None)
        order[node] = step
        model.remember(0, node, float(step))
        if before > capacity * 9 // 8:
            kept = list(order)[-capacity // 100 :]
            assert [n for n in range(1, 61) if model.match_tokens(n)[0] > 0] == sorted(kept)


def test_two_hours_of_long_documents__bounded_memory():
    # 7,200 documents of 8,000 tokens, one a second, over four workers of 200,000 tokens
    model = CacheModel(flat_spec(7200, 8000, [200_000] * 4))
    for node in range(1, 7201):
        model.remember(node % 4, node, float(node))
    assert model.tokens.max() <= 225_000
    assert len(model) <= 4 * 28


@pytest.mark.parametrize("node", [1, 2])
def test_prompt_longer_than_the_cache__is_forgotten_again(node, forest):
    model = CacheModel(FleetSpec(1, (50,), 1, forest))
    model.remember(0, node, 1.0)
    assert model.match_tokens(node).tolist() == [0]
