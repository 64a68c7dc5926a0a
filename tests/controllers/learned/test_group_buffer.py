from __future__ import annotations

import numpy as np
import pytest
import torch
from gymnasium import spaces

from controllers.learned.group_buffer import GroupBuffer
from kvgym.errors import ConfigError

SPACE = spaces.Dict({"a": spaces.Box(0.0, 1.0, (1,))})


def filled(group):
    """Three steps of four environments; the second pair earns 10 more per step, whatever it does."""
    buffer = GroupBuffer(3, SPACE, spaces.Discrete(2), "cpu", gae_lambda=1.0, gamma=1.0, n_envs=4, group=group)
    own = np.array([[1, 2, 1, 2], [0, 4, 0, 4], [1, 1, 1, 1]], float)
    for row in own:
        rewards = row + np.array([0, 0, 10, 10])
        zeros = torch.zeros(4)
        buffer.add({"a": np.zeros((4, 1))}, np.zeros((4, 1)), rewards, np.zeros(4), zeros, zeros)
    buffer.compute_returns_and_advantage(torch.zeros(4), np.ones(4))
    return buffer


def test_advantages__are_relative_to_the_group():
    buffer = filled(2)
    assert buffer.advantages.tolist() == [[-2.5, 2.5, -2.5, 2.5], [-2.0, 2.0, -2.0, 2.0], [0.0] * 4]


def test_returns__stay_what_the_value_is_to_predict():
    assert filled(2).returns.tolist() == filled(1).returns.tolist() == filled(1).advantages.tolist()


@pytest.mark.parametrize("group", [0, 3])
def test_group__must_divide_the_environments(group):
    with pytest.raises(ConfigError, match="divide the number of environments"):
        filled(group)
