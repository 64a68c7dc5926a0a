"""The rules by hand; what holds for every router is tested elsewhere."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest

from controllers.routing.affinity_load import AffinityLoad

SPEED = 100.0


@pytest.fixture
def router(start: Any) -> AffinityLoad:
    return start(AffinityLoad(max_penalty_s=2.0, prefill_tokens_per_s=SPEED), 3)


@pytest.fixture
def at(ask: Any) -> Any:
    """Return a decision about a prompt of 100 tokens."""

    def decision(hit: list[int], time_s: float = 0.0, mask: Any = None) -> Any:
        made = ask(2, [0, 0, 0], time_s, mask=mask)
        return dataclasses.replace(made, prompt_tokens=100, hit_tokens=np.array(hit))

    return decision


def test_affinity__four_fifths_of_the_prompt_win_over_load(router: AffinityLoad, at: Any) -> None:
    assert router.act(at([0, 80, 79])) == 1
    assert router.act(at([0, 80, 79])) == 1  # 20 tokens are in flight there, 0 elsewhere
    assert router.uncached_tokens.tolist() == [0, 40, 0]


def test_load__the_fewest_uncached_tokens(router: AffinityLoad, at: Any) -> None:
    router.uncached_tokens[:] = [50, 30, 40]
    assert router.act(at([0, 0, 0])) == 1
    assert router.act(at([70, 0, 0])) == 0  # 50 + 30 against 130 + 100 and 40 + 100


def test_load__drains_at_the_prefill_speed(router: AffinityLoad, at: Any) -> None:
    assert router.act(at([90, 0, 0])) == 0
    router.uncached_tokens[0] = 60
    router.act(at([95, 0, 0], time_s=0.5))
    assert router.uncached_tokens[0] == pytest.approx(60 - 50 + 5)


def test_gate__opens_when_the_sticky_worker_is_too_far_behind(router: AffinityLoad, at: Any) -> None:
    router.uncached_tokens[:] = [2.0 * SPEED, 0, 0]
    assert router.act(at([90, 0, 0])) == 0  # not more than two seconds
    router.uncached_tokens[:] = [2.0 * SPEED + 200, 10, 0]
    assert router.act(at([90, 0, 0])) == 2
    router.max_penalty_s = 0.0
    assert router.act(at([90, 0, 0])) == 0


def test_mask__a_sticky_worker_that_is_down_does_not_count(router: AffinityLoad, at: Any) -> None:
    assert router.act(at([100, 0, 85], mask=[False, True, True])) == 2
    assert router.act(at([100, 0, 0], mask=[False, True, False])) == 1
