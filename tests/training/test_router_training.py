from __future__ import annotations

import pytest

from kvgym.errors import ConfigError, UnknownNameError
from kvgym.training.router_training import load_training


def test_comparison__plays_the_environment_on_the_seeds_of_its_part():
    config = load_training({"name": "x", "env": {"eviction": "rlt"}, "test": {"workload": "gsp_small", "seeds": [5]}})
    data = config.comparison(["random"], config.test)
    assert data["workloads"] == ["gsp_small"] and data["seeds"] == [5] and data["eviction"] == ["rlt"]
    assert config.comparison(["random"], config.validation)["workloads"] == ["gsp_default"]


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ({"stepz": 5}, "unknown key 'stepz' in train; did you mean 'steps'"),
        ({"ppo": {"gama": 0.9}}, "unknown key 'gama' in train.ppo; did you mean 'gamma'"),
        ({"env": {"workloads": "gsp_small"}}, "did you mean 'workload'"),
        ({"env": {"workload": "gsp_smal"}}, "did you mean 'gsp_small'"),
        ({"env": {"eviction": "lruu"}}, "did you mean 'lru'"),
        ({"test": {"against": ["lbrg"]}}, "did you mean 'lbgr'"),
        ({"test": {"against": []}}, "at least one router"),
        ({"ppo": {"gamma": 1.5}}, "gamma and gae_lambda must be in 0..1"),
        ({"ppo": {"batch_size": 1}}, "batch_size must be at least 2"),
        ({"envs": 8, "group": 3}, "group must divide envs"),
        ({"steps": 0}, "must be at least 1"),
        ({"validation": {"seeds": [1, 2]}, "test": {"seeds": [2, 3]}}, "without a common seed"),
        ({"residual_per_s": 5.0}, "residual_per_s needs work_rows"),
        ({"ppo": [1]}, "train.ppo must be a map"),
    ],
)
def test_mistakes__are_named(data, message):
    with pytest.raises((ConfigError, UnknownNameError), match=message):
        load_training({"name": "x", **data})
