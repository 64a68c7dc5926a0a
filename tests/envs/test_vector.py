"""The vector environment is what SyncVectorEnv makes of scalar ones, seed by seed and action by action."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from kvgym.backends.simulated import SimulatedBackend
from kvgym.envs.routing import RoutingEnv
from kvgym.envs.vector import RoutingVectorEnv, info_of
from kvgym.errors import ConfigError, SimulationError, UnknownNameError

TINY = {
    "workload": {"source": "gsp", "groups": 6, "prompts_per_group": 5, "lens": [64, 128], "rate_rps": 30.0},
    "cluster": {"workers": 3, "capacity_tokens": 600},
    "eviction": "rlt",
}
CHAT = str(Path(__file__).with_name("chat.yaml"))


def native(copies: int, **arguments: Any) -> RoutingVectorEnv:
    return gymnasium.make_vec(
        "kvgym/Routing-v0", copies, vectorization_mode="vector_entry_point", **{**TINY, **arguments}
    )


def scalar(copies: int, **arguments: Any) -> SyncVectorEnv:
    def make() -> gymnasium.Env:
        return gymnasium.make("kvgym/Routing-v0", **{**TINY, **arguments})

    return SyncVectorEnv([make] * copies, autoreset_mode=AutoresetMode.SAME_STEP)


def plain(step: tuple, copies: int) -> list:
    """Return everything that one step or reset of each copy gave, as plain values that can be compared."""
    observation, *numbers, infos = step
    seen = []
    for i in range(copies):
        final = infos["final_obs"][i] if "final_obs" in infos else None
        last = None if final is None else {name: row.tolist() for name, row in final.items()}
        own = {name: rows[i].tolist() for name, rows in observation.items()}
        seen.append((own, *(float(values[i]) for values in numbers), listed(info_of(infos, i)), last))
    return seen


def listed(info: dict) -> dict:
    """Return an info with lists in the place of arrays."""
    return {
        name: value.tolist() if isinstance(value, np.ndarray) else listed(value) if isinstance(value, dict) else value
        for name, value in info.items()
    }


def same(copies: int, steps: int, seed: Any = 5, actions: Any = None, **arguments: Any) -> list:
    """Play both with the same actions over several episodes; compare everything; return what was seen."""
    both = native(copies, **arguments), scalar(copies, **{k: v for k, v in arguments.items() if k != "threads"})
    rng, seen = np.random.default_rng(0), []
    steps_seen = [plain(each.reset(seed=seed), copies) for each in both]
    assert steps_seen[0] == steps_seen[1]
    for _ in range(steps):
        route = rng.integers(both[0].single_action_space.n, size=copies) if actions is None else actions(rng, copies)
        ours, theirs = (plain(each.step(route), copies) for each in both)
        assert ours == theirs
        seen.append(ours)
    for each in both:
        each.close()
    return seen


@pytest.mark.parametrize(
    "arguments",
    [
        {},
        {"observability": "exact"},
        {"signals": {"scrape_s": 0.1, "scrape_delay_s": 0.05, "scrape_loss": 0.3}},
        {"signals": {"index_tokens": 200}},
        {"signals": {"metrics": False}},
        {"signals": {"routers": 2}},
        {"observability": "events"},
        {"reward": {"latency": 1.0, "ttft": 0.5, "makespan": 2.0}},
        {"reward": {"latency": 1.0, "cache": 0.1}},
        {"reward": {"makespan_alone": 1.0, "makespan_completion": 0.5}},
        {"workload": CHAT},
        {"workload": CHAT, "cluster": {"workers": 3, "capacity_tokens": 82}},  # too small for one of the prompts
        {"workload": TINY["workload"] | {"rate_rps": None}, "cluster": {"workers": 2, "capacity_tokens": [400, 900]}},
        {"eviction": "lru", "cluster": TINY["cluster"] | {"page_size": 16, "capacity_tokens": 640}},
        {"max_episode_steps": 7},
        {"max_episode_steps": 30},
    ],
    ids=lambda arguments: "-".join(arguments) or "default",
)
def test_trajectories__are_those_of_scalar_environments(arguments):
    same(3, 70, **arguments)


def test_trajectories__do_not_depend_on_threads():
    runs = [same(17, 40, threads=threads) for threads in (1, 2, 5)]
    assert runs[0] == runs[1] == runs[2]


def test_trajectories__in_large_episodes_whose_arrays_must_grow():
    workload = {"source": "gsp", "groups": 60, "prompts_per_group": 20, "lens": [512, 1024], "rate_rps": 40.0}
    envs = native(2, workload=workload, cluster="l40x4")
    envs.reset(seed=0)
    slots = [len(env.backend.engine.cache.slots) for env in envs._envs]
    memory = [env.backend._known.only.nbytes for env in envs._envs]
    alone = [RoutingEnv(workload, "l40x4", eviction="rlt") for _ in range(2)]
    for i, env in enumerate(alone):
        env.reset(seed=i)
    for k in range(1100):
        rewards = envs.step(np.array([k % 4, k * k % 4]))[1]
        assert rewards.tolist() == [alone[0].step(k % 4)[1], alone[1].step(k * k % 4)[1]]
    for i, env in enumerate(envs._envs):
        assert len(env.backend.engine.cache.slots) > slots[i]
        assert env.backend._known.only.nbytes > memory[i]
        assert (env.backend.records() == alone[i].records()).all()


def test_copies__run_out_of_step_when_their_episodes_have_different_lengths():
    workload = TINY["workload"] | {"zipf": 1.0}
    seen = same(4, 120, workload=workload)
    ends = [[step[i][2] for step in seen] for i in range(4)]
    assert all(sum(each) >= 2 for each in ends)


def test_seeds__may_be_given_one_by_one():
    first = same(3, 5, seed=[9, 2, 9])
    assert first[0][0][1:] == first[0][2][1:]
    with pytest.raises(ConfigError, match="one seed or 3, got 2"):
        native(3).reset(seed=[1, 2])


def test_options__fix_the_episode_seeds():
    envs = native(3)
    assert envs.reset(options={"seed": 40})[1]["episode_seed"].tolist() == [40, 41, 42]
    for wrong in ({"seeds": 1}, {"seed": -1}, {"seed": True}, {"seed": "1"}):
        with pytest.raises(ConfigError, match="option 'seed'"):
            envs.reset(options=wrong)


@pytest.mark.parametrize("dtype", [np.int64, np.uint8, np.float64, object])
def test_invalid_actions__go_to_the_first_worker_and_are_counted(dtype):
    wild = np.array([0, 2, 3, 200]).astype(dtype)
    same(4, 33, actions=lambda rng, copies: rng.permutation(wild))


def test_actions__of_another_number_are_an_error():
    envs = native(3)
    with pytest.raises(SimulationError, match="call reset"):
        envs.step(np.zeros(3, int))
    envs.reset(seed=0)
    for wrong in (np.zeros(2, int), 1, np.zeros((3, 1), int), None):
        with pytest.raises(ConfigError, match=r"takes 3 actions, shape \(3,\)"):
            envs.step(wrong)


def test_a_fleet_that_changes__is_stepped_copy_by_copy_and_masked():
    times = {"fail": 0.2, "recover": 0.6}
    schedule = [{"time_s": time_s, "worker": 1, "event": event} for event, time_s in times.items()]
    cluster = TINY["cluster"] | {"schedule": schedule, "detect_s": 0.05}
    seen = same(3, 70, cluster=cluster)
    assert any(info["invalid_actions"] > 0 for step in seen for *_, info, _ in step)
    envs = native(2, cluster=cluster)
    envs.reset(seed=0)
    masks = [envs.action_masks()]
    for _ in range(29):
        envs.step(np.zeros(2, int))
        masks.append(envs.action_masks())
    assert np.all([mask[:, [0, 2]].all() for mask in masks])
    assert {bool(mask[0, 1]) for mask in masks} == {True, False}


@pytest.mark.parametrize(
    ("arguments", "together"),
    [
        ({}, True),
        ({"observability": "exact"}, True),
        ({"signals": {"scrape_s": 0.1}}, True),
        ({"observability": "events"}, False),
        ({"signals": {"metrics": False}}, False),
        ({"signals": {"routers": 2}}, False),
    ],
)
def test_compiled_code__covers_plain_signals(arguments, together):
    envs = native(2, **arguments)
    envs.reset(seed=0)
    assert (envs._batch is not None) == together


def test_what_compiled_code_does_not_cover__is_stepped_copy_by_copy(monkeypatch):
    monkeypatch.setattr(SimulatedBackend, "batchable", False)
    envs = native(2)
    envs.reset(seed=0)
    assert envs._batch is None and envs.action_masks().tolist() == [[True] * 3] * 2
    same(3, 70, reward={"latency": 1.0, "cache": 0.1}, max_episode_steps=25)


def test_close__closes_every_backend(monkeypatch):
    closed = []
    monkeypatch.setattr(SimulatedBackend, "close", lambda self: closed.append(self))
    envs = native(3)
    envs.close()
    assert closed == []
    envs = native(3)
    envs.reset(seed=0)
    envs.close()
    envs.close()
    assert closed == [env.backend for env in envs._envs]


def test_seed_pool__episodes_come_from_it_and_workloads_are_made_once(monkeypatch):
    from kvgym.workloads.gsp import GSP

    made, generate = [], GSP.generate
    monkeypatch.setattr(GSP, "generate", lambda self, seed, page=1: made.append(seed) or generate(self, seed, page))
    envs = native(4, seed_pool=3)
    seeds = set(envs.reset(seed=0)[1]["episode_seed"].tolist())
    for _ in range(300):
        infos = envs.step(np.zeros(4, int))[-1]
        seeds |= set(infos["episode_seed"].tolist())
    assert seeds == {0, 1, 2} and sorted(made) == [0, 1, 2]


def test_seed_pool__an_episode_is_that_of_its_seed():
    envs = native(2, seed_pool=2)
    seeds = envs.reset(seed=3)[1]["episode_seed"].tolist()
    for i, seed in enumerate(seeds):
        alone = RoutingEnv(**TINY)
        alone.reset(options={"seed": seed})
        rewards = [alone.step(k % 3)[1] for k in range(30)]
        envs.reset(seed=3)
        assert [envs.step(np.full(2, k % 3))[1][i] for k in range(30)] == rewards


def test_spaces__hold_what_is_seen_and_arrays_are_ours_to_keep():
    envs = native(5)
    observation, _ = envs.reset(seed=0)
    kept = []
    for _ in range(40):
        assert envs.observation_space.contains(observation)
        kept.append((observation, {name: rows.copy() for name, rows in observation.items()}))
        observation, reward, *_ = envs.step(envs.action_space.sample())
        assert reward.dtype == np.float64
    assert all((was[name] == now[name]).all() for now, was in kept for name in was)


def test_metadata__declares_the_autoreset_mode():
    envs = native(2)
    assert envs.metadata["autoreset_mode"] is AutoresetMode.SAME_STEP
    assert gymnasium.make_vec(envs.spec).num_envs == 2


@pytest.mark.parametrize(
    ("argument", "error", "message"),
    [
        ({"num_envs": 0}, ConfigError, "num_envs must be a whole number >= 1, got 0"),
        ({"seed_pool": 0}, ConfigError, "seed_pool must be a whole number >= 1 or None"),
        ({"threads": 1.5}, ConfigError, "threads must be"),
        ({"max_episode_steps": True}, ConfigError, "max_episode_steps must be"),
        ({"render_mode": "ansi"}, ConfigError, "draws nothing"),
        ({"eviction": "lruu"}, UnknownNameError, "did you mean 'lru'"),
    ],
)
def test_wrong_arguments__are_reported_when_it_is_made(argument, error, message):
    with pytest.raises(error, match=message):
        RoutingVectorEnv(**{"num_envs": 2, **TINY, **argument})


JIT_OFF = """
import json, sys
import numpy as np
from kvgym.envs.routing import RoutingEnv
from kvgym.envs.vector import RoutingVectorEnv

tiny = json.loads(sys.argv[1])
for name in ("router", "exact"):
    envs, alone = RoutingVectorEnv(2, threads=2, observability=name, **tiny), RoutingEnv(observability=name, **tiny)
    envs.reset(seed=3)
    alone.reset(seed=4)
    for k in range(30):
        seen, reward, ended, *_ = envs.step(np.full(2, k % 3))
        own, own_reward, own_ended, *_ = alone.step(k % 3)
        assert (reward[1], ended[1]) == (own_reward, own_ended)
        assert ended[1] or all((seen[part][1] == own[part]).all() for part in own)
    print(name, "ended" if ended[1] else "goes on")
"""


def test_jit_off__is_the_scalar_environment_too():
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", JIT_OFF, json.dumps(TINY)],
        env={**os.environ, "NUMBA_DISABLE_JIT": "1"},
        cwd=Path(__file__).resolve().parents[2],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr, done.stdout.split()) == (0, "", ["router", "ended", "exact", "ended"])


def test_make_vec__names_what_it_does_not_take():
    with pytest.raises(
        ConfigError, match=r"does not take 'workloads'; did you mean 'workload'\? it takes workload, clus"
    ):
        gymnasium.make_vec("kvgym/Routing-v0", num_envs=2, workloads="gsp_small")
    with pytest.raises(ConfigError, match="draws nothing"):
        gymnasium.make_vec("kvgym/Routing-v0", num_envs=2, render_mode="ansi")
