from __future__ import annotations

import pytest

from kvgym.config.loader import load_config, preset_names
from kvgym.config.options import to_plain
from kvgym.training.eviction_training import load_eviction_training
from kvgym.training.router_training import load_training

LOADERS = {"train": load_training, "train_eviction": load_eviction_training}


@pytest.mark.parametrize(("kind", "name"), [(kind, name) for kind in LOADERS for name in preset_names(kind)])
def test_presets__load_and_survive_a_round_trip(kind, name):
    load = LOADERS[kind]
    config = load(load_config(kind, name))
    assert config.name == name
    assert load(to_plain(config)) == config
