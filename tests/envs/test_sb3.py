"""The VecEnv adapter does what DummyVecEnv does with scalar environments, and PPO trains on it."""

from __future__ import annotations

import sys

import gymnasium
import numpy as np
import pytest
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv

from kvgym.envs.sb3 import as_vec_env
from kvgym.envs.vector import RoutingVectorEnv
from kvgym.errors import ConfigError, MissingDependencyError

TINY = {
    "workload": {"source": "gsp", "groups": 6, "prompts_per_group": 5, "lens": [64, 128], "rate_rps": 30.0},
    "cluster": {"workers": 3, "capacity_tokens": 600},
    "reward": {"latency": 1.0, "ttft": 0.1},
}


def plain(step: tuple) -> list:
    observation, reward, done, infos = step
    return [{k: v.tolist() for k, v in observation.items()}, reward.tolist(), done.tolist(), [tidy(i) for i in infos]]


def tidy(info: dict) -> dict:
    """Drop what only the Monitor of `make_vec_env` adds, and make arrays comparable."""
    seen = {name: value for name, value in info.items() if name != "episode"}
    if "terminal_observation" in seen:
        seen["terminal_observation"] = {k: v.tolist() for k, v in seen["terminal_observation"].items()}
    return seen | {"action_mask": seen["action_mask"].tolist()}


@pytest.mark.parametrize("limit", [None, 12, 30])
def test_adapter__does_what_dummy_vec_env_does(limit):
    vec_env = pytest.importorskip("stable_baselines3.common.vec_env")
    more = {} if limit is None else {"max_episode_steps": limit}
    ours = as_vec_env(RoutingVectorEnv(num_envs=3, **TINY, **more))
    theirs = vec_env.DummyVecEnv([lambda: gymnasium.make("kvgym/Routing-v0", **TINY, **more)] * 3)
    starts = []
    for env in (ours, theirs):
        env.seed(7)
        starts.append({name: rows.tolist() for name, rows in env.reset().items()})
    assert starts[0] == starts[1]
    assert [tidy(info) for info in ours.reset_infos] == [tidy(info) for info in theirs.reset_infos]
    rng = np.random.default_rng(0)
    for _ in range(65):
        actions = rng.integers(3, size=3)
        assert plain(ours.step(actions)) == plain(theirs.step(actions))
    assert np.array_equal(ours.env_method("action_masks"), np.ones((3, 3), bool))
    assert ours.get_attr("num_envs", [0, 2]) == [3, 3]
    assert ours.env_is_wrapped(gymnasium.Wrapper) == [False] * 3
    ours.close()


def make_tiny() -> gymnasium.Env:
    return gymnasium.make("kvgym/Routing-v0", **TINY)


@pytest.mark.parametrize("mode", list(AutoresetMode))
@pytest.mark.parametrize("kind", [SyncVectorEnv, AsyncVectorEnv])
def test_adapter__takes_gymnasiums_vector_environments_of_every_autoreset_mode(kind, mode):
    pytest.importorskip("stable_baselines3")
    ours = as_vec_env(RoutingVectorEnv(num_envs=2, **TINY))
    theirs = as_vec_env(kind([make_tiny] * 2, autoreset_mode=mode))
    for env in (ours, theirs):
        env.seed(7)
        env.reset()
    rng = np.random.default_rng(0)
    ends = 0
    for _ in range(65):
        actions = rng.integers(3, size=2)
        expected, found = plain(ours.step(actions)), plain(theirs.step(actions))
        assert found == expected
        ends += sum(expected[2])
    assert ends == 4
    assert np.array_equal(theirs.env_method("action_masks"), np.ones((2, 3), bool))
    theirs.close()


def test_adapter__of_something_else_is_an_error():
    pytest.importorskip("stable_baselines3")
    with pytest.raises(ConfigError, match="as_vec_env takes a vector environment"):
        as_vec_env(make_tiny())


def test_adapter__options_fix_the_episode_seeds():
    pytest.importorskip("stable_baselines3")
    env = as_vec_env(RoutingVectorEnv(num_envs=2, **TINY))
    env.set_options({"seed": 8})
    env.reset()
    assert [info["episode_seed"] for info in env.reset_infos] == [8, 9]


def test_adapter__what_it_cannot_do_is_an_error():
    pytest.importorskip("stable_baselines3")
    env = as_vec_env(RoutingVectorEnv(num_envs=2, **TINY))
    with pytest.raises(AttributeError, match="can't be set"):
        env.set_attr("num_envs", 3)
    with pytest.raises(AttributeError, match="only action_masks"):
        env.env_method("fork")


def test_ppo__trains_on_it():
    sb3 = pytest.importorskip("stable_baselines3")
    from stable_baselines3.common.vec_env import VecMonitor

    env = VecMonitor(as_vec_env(RoutingVectorEnv(num_envs=4, seed_pool=8, **TINY)))
    model = sb3.PPO("MultiInputPolicy", env, n_steps=32, batch_size=64, n_epochs=1, seed=0, device="cpu")
    before = [p.detach().clone() for p in model.policy.parameters()]
    model.learn(256)
    assert any((p != q).any() for p, q in zip(model.policy.parameters(), before, strict=True))
    assert [episode["l"] for episode in model.ep_info_buffer] == [30] * len(model.ep_info_buffer) != []


def test_without_stable_baselines3__the_error_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "stable_baselines3.common.vec_env", None)
    with pytest.raises(MissingDependencyError, match=r"pip install 'kvgym\[train\]'"):
        as_vec_env(RoutingVectorEnv(num_envs=1, **TINY))
