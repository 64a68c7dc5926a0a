from __future__ import annotations

import pytest

from kvgym.errors import ConfigError, UnknownNameError
from kvgym.training.eviction_training import load_eviction_training


def test_comparison__plays_the_environment_with_other_policies():
    config = load_eviction_training({"name": "x", "env": {"routing": "lbgr", "workload": "gsp_small"}})
    data = config.comparison(["lru", "a.json"], [5])
    assert data["routing"] == ["lbgr"] and data["workloads"] == ["gsp_small"] and data["seeds"] == [5]
    assert data["eviction"] == ["lru", "a.json"]


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ({"ppo": {"gama": 0.9}}, "unknown key 'gama' in train.ppo; did you mean 'gamma'"),
        ({"env": {"evict": "lru"}}, "unknown key 'evict' in train.env"),
        ({"env": {"routing": "lbrg"}}, "did you mean 'lbgr'"),
        ({"against": ["rtl"]}, "did you mean 'rlt'"),
        ({"against": []}, "at least one eviction policy"),
        ({"units": 0}, "units and every must be at least 1"),
        ({"units": 300}, "units must be at most 256, got 300"),
        ({"seed": -1}, "must be whole numbers >= 0"),
        ({"validation_seeds": [-1]}, "must be whole numbers >= 0"),
        ({"validation_seeds": [1], "test_seeds": [1]}, "without a common seed"),
    ],
)
def test_mistakes__are_explained(data, message):
    with pytest.raises((ConfigError, UnknownNameError), match=message):
        load_eviction_training({"name": "x", **data})
