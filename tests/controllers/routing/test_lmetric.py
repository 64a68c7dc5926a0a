from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from controllers.routing.lmetric import LMetric


@pytest.fixture
def choose(start, ask):
    """Return a function that asks about a prompt of 200 tokens."""

    def make(inflight, hit, mask=None):
        router = start(LMetric(), len(inflight))
        hits = None if hit is None else np.array(hit)
        return router.act(dataclasses.replace(ask(2, inflight, mask=mask), hit_tokens=hits))

    return make


def test_product__of_new_tokens_and_batch_size(choose):
    assert choose([3, 1], [150, 0]) == 0  # 50 * 4 = 200 < 200 * 2
    assert choose([9, 1], [150, 0]) == 1  # 50 * 10 = 500 > 400


def test_ties__fewer_in_flight_then_the_lowest_id(choose):
    assert choose([3, 1], [100, 0]) == 1  # 100 * 4 = 200 * 2
    assert choose([1, 1, 1], [0, 0, 0]) == 0


def test_unknown_caches__leave_the_load(choose):
    assert choose([3, 1, 2], None) == 1


def test_mask__leaves_the_best_out(choose):
    assert choose([0, 5, 9], [199, 0, 0], mask=[False, True, True]) == 1
