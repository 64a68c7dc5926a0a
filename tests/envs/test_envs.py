"""The contract that every registered environment keeps."""

from __future__ import annotations

import copy
import json
import os
import pickle
import subprocess
import sys
import warnings
from pathlib import Path

import gymnasium
import numpy as np
import pytest
from gymnasium.envs.registration import EnvSpec
from gymnasium.utils.env_checker import check_env

from kvgym import ENVS
from kvgym.types import Decision

TINY = {
    "workload": {"source": "gsp", "groups": 6, "prompts_per_group": 5, "lens": [64, 128], "rate_rps": 30.0},
    "cluster": {"workers": 3, "capacity_tokens": 600},
    "reward": {"latency": 1.0, "ttft": 0.1},
}
"""Thirty requests on caches that are too small for them."""
OWN = {
    "kvgym/Routing-v0": {"eviction": "rlt"},
    "kvgym/Eviction-v0": {"routing": "cache_aware", "candidates": 5, "tail_tokens": 20},
    "kvgym/Joint-v0": {"candidates": 4},
}
ADVICE = ".*(workers|candidates) has an unconventional shape"
"""SB3's advice to flatten: rows are kept apart for policies that treat them as a set; MultiInputPolicy flattens."""

everywhere = pytest.mark.parametrize("name", ENVS)


@pytest.fixture
def make():
    def make(name: str, **changes: object) -> gymnasium.Env:
        return gymnasium.make(name, **{**TINY, **OWN[name], **changes})

    return make


def advance(env: gymnasium.Env, steps: int) -> None:
    for i in range(steps):
        env.step(i * 7 % env.action_space.n)


def plain(info: dict) -> dict:
    """Return an info that can be compared."""
    return info | {"action_mask": info["action_mask"].tolist()}


def future(env: gymnasium.Env, steps: int = 200) -> list:
    """Play on with fixed actions, over the end of the episode, and return all that was seen."""
    seen = []
    for i in range(steps):
        action = i * i % env.action_space.n
        observation, reward, terminated, truncated, info = env.step(action)
        seen.append(({k: v.tolist() for k, v in observation.items()}, reward, terminated, truncated, plain(info)))
        if terminated:
            seen.append(plain(env.reset()[1]))
    return seen


FAULTS = [{"time_s": 0.2, "worker": 1, "event": "fail"}, {"time_s": 0.7, "worker": 1, "event": "recover"}]


@everywhere
def test_check_env__gymnasium(name, make):
    check_env(make(name).unwrapped)


@everywhere
def test_check_env__with_failures_and_regions(name, make):
    cluster = TINY["cluster"] | {"schedule": FAULTS, "network_s": {"a": 0.01, "b": [0.1, 0.0, 0.2]}, "detect_s": 0.1}
    check_env(make(name, cluster=cluster).unwrapped)
    env, twin = make(name, cluster=cluster), make(name, cluster=cluster)
    for each in (env, twin):
        each.reset(seed=3)
        advance(each, 12)
    frozen = pickle.loads(pickle.dumps(env.unwrapped)), copy.deepcopy(env.unwrapped)
    expected = future(twin)
    for each in (env, *frozen):
        assert future(each) == expected


@everywhere
def test_check_env__sb3(name, make):
    checker = pytest.importorskip("stable_baselines3.common.env_checker")
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", ADVICE)
        checker.check_env(make(name).unwrapped)
    checker.check_env(gymnasium.wrappers.FlattenObservation(make(name)))


@everywhere
def test_twins__same_seed_same_episodes(name, make):
    twins = make(name), make(name)
    starts = [env.reset(seed=5) for env in twins]
    assert plain(starts[0][1]) == plain(starts[1][1])
    assert future(twins[0]) == future(twins[1])


@everywhere
def test_seeds__give_different_episodes(name, make):
    env = make(name)
    first, second, again = (plain(env.reset(seed=seed)[1]) for seed in (1, 2, 1))
    assert first["episode_seed"] != second["episode_seed"]
    assert again == first


@everywhere
@pytest.mark.parametrize(
    "clone", [lambda env: pickle.loads(pickle.dumps(env)), copy.deepcopy], ids=["pickle", "deepcopy"]
)
def test_clone__in_mid_episode_has_the_same_future(name, make, clone):
    env = make(name).unwrapped
    env.reset(seed=3)
    advance(env, 11)
    twin = clone(env)
    assert future(twin) == future(env)


@everywhere
def test_spec__goes_to_json_and_back(name, make):
    env = make(name)
    again = gymnasium.make(EnvSpec.from_json(env.spec.to_json()))
    assert plain(again.reset(seed=4)[1]) == plain(env.reset(seed=4)[1])
    assert future(again, 20) == future(env, 20)


@everywhere
def test_time_limit__truncates_and_does_not_terminate(name, make):
    env = make(name, max_episode_steps=4)
    env.reset(seed=0)
    assert [env.step(0)[2:4] for _ in range(4)] == [(False, False)] * 3 + [(False, True)]


@everywhere
def test_values__are_plain(name, make):
    env = make(name)
    _, info = env.reset(seed=0)
    infos = [info]
    for i in range(30):
        _, reward, terminated, truncated, info = env.step(i % 3)
        assert (type(reward), type(terminated), type(truncated)) == (float, bool, bool)
        infos.append(info)
        if terminated:
            infos.append(env.reset()[1])
    values = [value for info in infos for value in (*info.values(), *info.get("rewards", {}).values())]
    assert {type(value) for value in values} <= {int, float, dict, np.ndarray}
    assert np.isfinite([value for value in values if not isinstance(value, dict | np.ndarray)]).all()
    assert {tuple(info) for info in infos} == {tuple(infos[0])}, "recorders want the same keys at every step"


@everywhere
def test_action_mask__is_in_every_info(name, make):
    env = make(name)
    _, info = env.reset(seed=0)
    for i in range(30):
        mask = info["action_mask"]
        assert mask.dtype == np.int8 and mask.tolist() == env.unwrapped.action_masks().astype(int).tolist()
        _, _, over, _, info = env.step(i % 3)
        if over:
            _, info = env.reset()


@everywhere
def test_defaults__need_no_arguments(name):
    env = gymnasium.make(name)
    observation, _ = env.reset(seed=0)
    for i in range(100):
        assert env.observation_space.contains(observation)
        observation, *_ = env.step(i % 4)


EPISODE = """
import hashlib, json, sys
from kvgym.envs.routing import RoutingEnv

tiny = json.loads(sys.argv[1])
stale = {"scrape_s": 0.1, "scrape_delay_s": 0.15, "scrape_loss": 0.3, "routers": 2}
lossy = {**stale, "event_delay_s": 0.1, "event_loss": 0.2}
for name, signals in (("router", None), ("exact", stale), ("events", lossy)):
    env = RoutingEnv(**tiny, observability=name, signals=signals)
    total, seen, done = 0.0, hashlib.sha256(), False
    env.reset(seed=3)
    while not done:
        told = env.decision
        for part in (told.hit_tokens, told.inflight_tokens, told.running, told.queued, told.kv_used_tokens):
            seen.update(part.tobytes())
        _, reward, done, _, _ = env.step(env.decision.request % 3)
        total += reward
    integers = [env.records()[name].tolist() for name in ("request", "worker", "hit_tokens", "retractions")]
    print(json.dumps([seen.hexdigest(), integers, round(total, 9)]))
"""


def test_jit_off__gives_the_same_episode():
    runs = []
    for off in ("0", "1"):
        done = subprocess.run(
            [sys.executable, "-W", "error", "-c", EPISODE, json.dumps(TINY | OWN["kvgym/Routing-v0"])],
            env={**os.environ, "NUMBA_DISABLE_JIT": off},
            cwd=Path(__file__).resolve().parents[2],
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        runs.append(done.stdout)
    assert runs[0] == runs[1] != ""


@pytest.mark.parametrize("name", ["kvgym/Routing-v0", "kvgym/Joint-v0"])
def test_signals__reach_the_decisions_and_survive_json(name, make):
    signals = {"routers": 3, "metrics": False, "observability": "events", "event_delay_s": 0.25}
    env = gymnasium.make(EnvSpec.from_json(make(name, signals=signals).spec.to_json()))
    observation, _ = env.reset(seed=0)
    routers, done = set(), False
    while not done:
        decision, action = env.unwrapped.decision, 0
        assert env.observation_space.contains(observation)
        if isinstance(decision, Decision):
            assert decision.queued is None
            routers.add(decision.router)
            action = decision.request % len(decision.mask)
        observation, _, done, _, _ = env.step(action)
    assert routers == {0, 1, 2}


SPAWNED = """
import gymnasium
from gymnasium.vector import AsyncVectorEnv

def make():
    return gymnasium.make("kvgym:kvgym/Routing-v0", workload="gsp_small")

if __name__ == "__main__":
    env = AsyncVectorEnv([make, make], context="spawn")
    observation, _ = env.reset(seed=0)
    print(sorted(observation), len(observation["workers"]))
    env.close()
"""
"""Nobody imports kvgym, neither here nor in the processes that are started."""


def test_make__the_id_with_its_module_needs_no_import_not_even_in_spawned_processes(tmp_path):
    script = tmp_path / "spawned.py"
    script.write_text(SPAWNED)
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, timeout=300)
    assert (done.returncode, done.stdout.strip()) == (0, "['request', 'workers'] 2"), done.stderr
