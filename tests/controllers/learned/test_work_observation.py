from __future__ import annotations

import warnings

import numpy as np
from gymnasium.utils.env_checker import check_env

from controllers.routing.blend import Blend


def test_wrapper__passes_gymnasiums_checker(make):
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*is different from the unwrapped version")
        check_env(make(3), skip_render_check=True, skip_close_check=True)


def test_wrapper__its_score_is_the_blend_rules(make):
    env, rule = make(3), Blend()
    observation, _ = env.reset(options={"seed": 4})
    inner = env.unwrapped
    rule.reset(inner.fleet, 4)
    steps, over = 0, False
    while not over:
        score = observation["work"][:, -1]
        worker = rule.act(inner.decision)
        assert score[worker] <= score.min() + 1e-6
        observation, _, over, _, _ = env.step(worker)
        rule.observe(inner.completed)
        assert env.observation_space.contains(observation)
        steps += 1
    assert steps == 30 and not observation["work"].any()


def test_wrapper__charges_an_invalid_action_to_the_worker_that_got_it(make):
    env = make(3)
    env.reset(options={"seed": 0})
    observation, *_ = env.step(99)
    assert observation["work"][:, 4].tolist() == [1.0, 0.0, 0.0]
    assert np.isfinite(observation["work"]).all()
