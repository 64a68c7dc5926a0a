from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from controllers.accounts.work_model import WorkModel
from kvgym.types import DONE, FAILED

REQUEST_S, MISS_S = 0.03, 0.13  # starting seconds per request and per 1,000 uncached tokens


@pytest.fixture
def model(fleet):
    return WorkModel(fleet(2))


def send(model, decision, worker):
    model.send(decision, worker, model.look(decision))


def test_look__prices_the_prompt_by_what_was_sent_where(model, ask):
    look = model.look(ask(2, [0, 0], request=0))
    assert look.hit_tokens.tolist() == [0, 0]
    assert look.miss_s.tolist() == pytest.approx([0.2 * MISS_S] * 2)
    assert look.cost_s.tolist() == pytest.approx([REQUEST_S + 0.2 * MISS_S] * 2)
    model.send(ask(2, [0, 0], request=0), 1, look)
    # node 3 shares the first 100 of its 200 tokens with node 2
    assert model.look(ask(3, [0, 1], request=1)).hit_tokens.tolist() == [0, 100]
    # the whole prompt is there, but one token is always computed
    assert model.look(ask(2, [0, 1], request=2)).hit_tokens.tolist() == [0, 199]


def test_work__drains_one_second_per_second_and_held_does_not(model, ask):
    send(model, ask(2, [0, 0], 0.0, request=0), 0)
    cost_s = REQUEST_S + 0.2 * MISS_S
    model.look(ask(4, [1, 0], 0.05, request=1))
    assert model.load.work_s.tolist() == pytest.approx([cost_s - 0.05, 0.0])
    assert model.load.held_s.tolist() == pytest.approx([cost_s, 0.0])
    model.look(ask(4, [1, 0], 9.0, request=1))
    assert model.load.work_s.tolist() == [0.0, 0.0]


def test_observe__nothing_is_left_when_nothing_is_in_flight(model, ask, finished):
    send(model, ask(2, [0, 0], 0.0, request=0), 0)
    send(model, ask(5, [1, 0], 0.0, request=1), 0)
    model.observe(finished((0, DONE, 0.01)))
    assert model.load.inflight.tolist() == [1, 0] and model.load.held_s[0] > 0
    model.observe(finished((1, DONE, 0.02), (7, DONE, 0.02)))
    assert (model.load.inflight[0], model.load.work_s[0], model.load.held_s[0]) == (0, 0.0, 0.0)
    assert model.answered_s.tolist() == [0.02, 0.0]
    assert model.latency_s[0] == pytest.approx(0.01 + 0.1 * (0.02 - 0.01))


def test_look__a_restarted_worker_leaves_the_index(model, ask, finished):
    send(model, ask(2, [0, 0], request=0), 0)
    send(model, ask(2, [0, 0], request=1), 1)
    model.observe(finished((0, FAILED, 1.0)))
    assert (model.load.inflight[0], model.answered_s[0]) == (0, 0)
    for expected in ([0, 199], [0, 199]):  # the second look is not a second restart
        later = dataclasses.replace(ask(2, [0, 1], 1.0, request=2), incarnation=np.array([1, 0]))
        assert model.look(later).hit_tokens.tolist() == expected


def test_look__a_request_sent_again_gives_back_what_it_held(model, ask):
    send(model, ask(2, [0, 0], request=0), 0)
    send(model, ask(2, [0, 0], request=0), 1)
    assert model.load.inflight.tolist() == [0, 1]
    assert model.load.held_s[0] == 0
