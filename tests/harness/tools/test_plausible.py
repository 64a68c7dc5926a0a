import json

import numpy as np
import pytest

from kvgym.errors import ConfigError
from kvgym.harness.tools.plausible import CONSTANTS, FACTORS, cards, chances, read_draws

FLEET = {"workers": 2, "capacity_tokens": 20_000}
GRID = {
    "name": "plausible",
    "workloads": [{"use": {"source": "gsp", "groups": 12, "prompts_per_group": 8, "lens": [512, 1024]}, "name": "gsp"}],
    "clusters": [{"use": FLEET, "name": "two"}],
    "routing": ["round_robin", "cache_aware"],
    "eviction": ["lru"],
    "seeds": 1,
}


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def test_chances__count_the_draws_in_which_a_pair_is_better():
    found = chances(GRID, 6, None, jobs=1)
    assert [(chance.cluster, chance.pair) for chance in found] == [("two", ("cache_aware", "lru"))] * 3
    assert {chance.metric for chance in found} == {"p50_latency_s", "p95_latency_s", "mean_latency_s"}
    for chance in found:
        assert round(chance.share * 6) == chance.share * 6
        assert chance.low <= chance.median <= chance.high
        assert chance.low < chance.high  # no two clusters are the same


def test_draws__of_a_calibration_are_what_is_played(tmp_path):
    path = tmp_path / "fit.draws.json"
    fast, slow = [5.0, 0.01, 5.0, 0.01], [20.0, 0.2, 20.0, 0.1]
    path.write_text(json.dumps({"names": ["p0_ms", "p_tok_ms", "d0_ms", "d_seq_ms"], "draws": [fast, slow]}))
    assert [draw["p_tok_ms"] for draw in read_draws(path)] == [0.01, 0.2]
    both = chances(GRID, 2, path, jobs=1)[0]
    path.write_text(json.dumps({"names": ["p0_ms", "p_tok_ms", "d0_ms", "d_seq_ms"], "draws": [fast]}))
    one = chances(GRID, 1, path, jobs=1)[0]
    assert one.median == pytest.approx(both.low + 0.0, rel=0.2) or one.median == pytest.approx(both.high, rel=0.2)
    assert not np.isclose(both.low, both.high)


def test_cards__name_every_constant_and_who_wins_where():
    found = cards(GRID, jobs=1)
    assert {card.constant for card in found} <= set(CONSTANTS)
    assert {"p_tok_ms", "capacity_tokens", "d0_ms"} <= {card.constant for card in found}
    for card in found:
        assert set(card.flips) <= set(FACTORS)
        assert card.winner not in card.flips.values()


def test_published_values__stay_behind():
    cells = [{"routing": "round_robin", "eviction": "lru", "published": {"p50_latency_s": 1.0}}]
    grid = {name: value for name, value in GRID.items() if name not in ("routing", "eviction")}
    assert chances({**grid, "cells": [*cells, {"routing": "random", "eviction": "lru"}]}, 2, None, jobs=1)


def test_mistakes__are_named(tmp_path):
    with pytest.raises(ConfigError, match="--posterior must be at least 1"):
        chances(GRID, 0, None)
    with pytest.raises(ConfigError, match="holds no draws"):
        chances(GRID, 1, tmp_path / "none.json")
    path = tmp_path / "x.json"
    path.write_text('{"names": ["p0_ms", "who"], "draws": [[1, 2]]}')
    with pytest.raises(ConfigError, match="holds no draws"):
        chances(GRID, 1, path)
    serial = {"use": {"workers": 1, "one_at_a_time": True, "cost": {"model": "analytic", "miss_ms": 0.1}}, "name": "s"}
    with pytest.raises(ConfigError, match="only linear step costs can be varied"):
        chances({**GRID, "clusters": [serial]}, 1, None)
