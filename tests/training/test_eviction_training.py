from __future__ import annotations

import pytest

from kvgym.config.loader import load_config, preset_names
from kvgym.config.options import to_plain
from kvgym.errors import ConfigError, UnknownNameError
from kvgym.training.eviction_training import load_eviction_training


@pytest.mark.parametrize("name", preset_names("train_eviction"))
def test_presets__load_and_survive_a_round_trip(name):
    config = load_eviction_training(load_config("train_eviction", name))
    assert config.name == name
    assert load_eviction_training(to_plain(config)) == config


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
