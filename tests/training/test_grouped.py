from __future__ import annotations

import gymnasium
import numpy as np
import pytest

import kvgym
from controllers.routing.round_robin import RoundRobin
from kvgym.control import ControllerPolicy
from kvgym.training.grouped import TrainingEpisodes

WORKLOAD = {"source": "gsp", "groups": 6, "prompts_per_group": 5, "lens": [64, 128], "rate_rps": 30.0}


def make(entropy, skip=0):
    kvgym.register_envs()
    env = gymnasium.make(
        "kvgym/Routing-v0",
        workload=WORKLOAD,
        cluster={"workers": 3, "capacity_tokens": 600},
        reward={"latency": 1.0, "ttft": 0.5},
    )
    return TrainingEpisodes(env, entropy, skip, lambda env: ControllerPolicy(RoundRobin(), env))


def seeds(env):
    return [env.reset(seed=9)[1]["episode_seed"] for _ in range(3)]


def test_reset__twins_get_the_same_episodes_and_others_do_not():
    first = seeds(make([1, 2]))
    assert first == seeds(make([1, 2])) != seeds(make([1, 3]))
    assert len(set(first)) == 3


def test_skip__only_the_first_episode_starts_late():
    env = make([0], skip=12)
    lengths = []
    for _ in range(2):
        env.reset()
        steps, over = 0, False
        while not over:
            _, _, over, _, _ = env.step(0)
            steps += 1
        lengths.append(steps)
    assert lengths == [18, 30]


def test_skip__beyond_the_end_begins_the_next_episode():
    env = make([0], skip=500)
    env.reset()
    assert env.unwrapped.decision is not None


def test_stats__are_those_of_the_episodes_records():
    env = make([4])
    env.reset()
    total, over, info = 0.0, False, {}
    while not over:
        assert "episode_stats" not in info
        _, reward, over, _, info = env.step(7)  # no such worker
        total += reward
    stats, records = info["episode_stats"], env.unwrapped.records()
    latency_s = records["finish_s"] - records["arrival_s"]
    assert stats["episode/mean_latency_s"] == pytest.approx(latency_s.mean())
    assert stats["episode/p95_latency_s"] == pytest.approx(np.percentile(latency_s, 95))
    assert stats["episode/hit_rate"] == pytest.approx(records["hit_tokens"].sum() / records["prompt_tokens"].sum())
    assert stats["episode/invalid_actions"] == 30
    assert stats["reward/latency"] == pytest.approx(-latency_s.sum())
    assert stats["reward/latency"] + 0.5 * stats["reward/ttft"] == pytest.approx(total)
