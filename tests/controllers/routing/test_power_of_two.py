from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from controllers.routing.power_of_two import PowerOfTwo
from kvgym.errors import ConfigError


@pytest.fixture
def router(start):
    return start(PowerOfTwo(), 4)


def test_two_different_workers__so_the_most_loaded_is_never_chosen(router, ask):
    counts = np.bincount([router.act(ask(1, [3, 9, 1, 5])) for _ in range(3000)], minlength=4)
    # of the six pairs the least loaded wins three, the next two, the third one
    assert counts / 3000 == pytest.approx([2 / 6, 0, 3 / 6, 1 / 6], abs=0.03)


def test_equal_load__the_worker_drawn_first(router, ask):
    counts = np.bincount([router.act(ask(1, [2, 2, 2, 2])) for _ in range(2000)], minlength=4)
    assert counts.min() > 400


def test_mask__of_two_allowed_workers_the_less_loaded(router, ask):
    assert {router.act(ask(1, [0, 7, 0, 4], mask=[False, True, False, True])) for _ in range(50)} == {3}
    assert {router.act(ask(1, [0, 7, 0, 4], mask=[False, True, False, False])) for _ in range(5)} == {1}


def test_tokens__compare_prompt_tokens_in_flight(start, ask):
    router = start(PowerOfTwo(load="tokens"), 2)
    decision = dataclasses.replace(ask(1, [10, 2]), inflight_tokens=np.array([1000, 100_000]))
    assert {router.act(decision) for _ in range(20)} == {0}


def test_load__that_is_unknown_is_an_error():
    with pytest.raises(ConfigError, match="must be one of 'requests', 'tokens', got 'bytes'"):
        PowerOfTwo(load="bytes")
