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

from kvgym.encoding.decisions import feature_table
from kvgym.encoding.offers import CACHE_FEATURES, CANDIDATE_FEATURES
from kvgym.envs.eviction import EvictionEnv
from kvgym.errors import ConfigError, SimulationError, UnknownNameError

ROOT = Path(__file__).resolve().parents[2]
WORKLOAD = {"source": "gsp", "groups": 6, "prompts_per_group": 8, "lens": [64, 128], "rate_rps": 30.0}
CLUSTER = {"workers": 2, "capacity_tokens": 700}
COLUMN = {feature.name: i for i, feature in enumerate(CANDIDATE_FEATURES)}


def make(**changes: Any) -> EvictionEnv:
    return EvictionEnv(**{"workload": WORKLOAD, "cluster": CLUSTER, "routing": "round_robin", **changes})


def play(env: EvictionEnv, choose: Any = lambda env: 0, seed: int = 0) -> tuple[float, int]:
    env.reset(options={"seed": seed})
    total, steps, done = 0.0, 0, False
    while not done:
        _, reward, done, _, _ = env.step(choose(env))
        total, steps = total + reward, steps + 1
    return total, steps


def last(env: EvictionEnv) -> int:
    return len(env.decision.candidates) - 1


def test_docstring__holds_the_table_of_the_features():
    lines = [line.strip() for line in (EvictionEnv.__doc__ or "").splitlines()]
    assert [line for line in lines if line.startswith("|")] == feature_table(
        {"cache": CACHE_FEATURES, "candidates": CANDIDATE_FEATURES}
    ).splitlines()


@pytest.mark.parametrize("offered", ["recent", "random", "both"])
def test_offer__follows_its_rule_and_holds_evictable_leaves_only(offered, monkeypatch):
    monkeypatch.setenv("KVGYM_CHECK", "1")
    env = make(candidates=4, offered=offered)
    env.reset(seed=0)
    rng, done, sizes = np.random.default_rng(0), False, set()
    while not done:
        decision, cache = env.decision, env.backend.engine.cache
        leaves = cache.order[decision.worker, : decision.leaves]
        slots = env.backend._slots
        n = min(4, decision.leaves)
        assert len(slots) == len(set(slots.tolist())) == n and set(slots.tolist()) <= set(leaves.tolist())
        assert (cache.slots["lock"][slots] == 0).all() and (cache.slots["children"][slots] == 0).all()
        by_access = leaves[np.argsort(cache.slots["access"][leaves])]
        recent = {"recent": n, "random": 0, "both": min(2, n)}[offered]
        assert slots[:recent].tolist() == by_access[:recent].tolist()
        assert env.action_masks().tolist() == [True] * n + [False] * (4 - n)
        sizes.add(n)
        _, _, done, _, _ = env.step(rng.integers(n))
    assert len(sizes) > 1


def test_offer__random_leaves_are_uniform():
    env = make(candidates=1, offered="random")
    env.reset(seed=3)
    while env.decision.leaves < 4:
        env.step(0)
    n = env.decision.leaves
    seen = []
    for _ in range(4000):
        env.backend._eviction()
        seen.append(int(env.backend._slots[0]))
    counts = np.unique(seen, return_counts=True)[1]
    assert len(counts) == n and abs(counts - 4000 / n).max() < 5 * np.sqrt(4000 / n)


def test_features__say_what_the_leaves_are():
    rows = [
        {"path": [["sys", 20], ["a", 30]], "session": 1, "priority": 2},
        {"path": [["sys", 20], ["b", 40]], "session": 2, "arrival_s": 10.0},
        {"path": [["sys", 20], ["a", 30], ["more", 10]], "session": 1, "think_s": 30.0},
        {"path": [["c", 50]], "arrival_s": 20.0, "session": 3},
    ]
    cluster = {"workers": 1, "capacity_tokens": 120, "cost": {"p0_ms": 1.0, "p_tok_ms": 0.01, "d0_ms": 1.0}}
    env = make(workload={"source": "fixed", "rows": rows}, cluster=cluster, candidates=4, offered="recent")
    observation, _ = env.reset(seed=0)
    decision = env.decision
    assert (decision.worker, decision.time_s, decision.leaves, decision.need_tokens) == (
        0,
        pytest.approx(20, abs=0.1),
        2,
        20,
    )
    a, b = decision.candidates
    assert [a["tokens"], b["tokens"]] == [30, 40] and [a["depth"], b["depth"]] == [50, 60]
    assert a["idle"] > b["idle"] and a["age"] > b["age"] and a["fanout"] == b["fanout"] == 2
    assert [a["open"], b["open"]] == [1, 0] and [a["children"], b["children"]] == [0, 0]
    assert [a["priority"], b["priority"]] == [2, 0] and a["hits"] == b["hits"] == 1
    assert observation["candidates"][0, COLUMN["priority"]] == pytest.approx(np.log(3) / np.log(257))
    assert observation["candidates"][1, COLUMN["tokens"]] == pytest.approx(np.log(41) / np.log(2**20 + 1))
    assert (observation["candidates"][2:] == 0).all()
    observation, _, done, _, _ = env.step(0)  # `a` goes; the session's next turn must load it again
    assert not done and env.decision.time_s > 30
    (sys_or_b,) = [row for row in env.decision.candidates if row["tokens"] == 40]
    assert sys_or_b["fanout"] == 1
    while not env.step(0)[2]:
        pass
    assert env.records()["hit_tokens"].tolist() == [0, 20, 0, 20]


def test_children__are_counted_for_good():
    env = make(candidates=64, offered="recent")
    env.reset(seed=1)
    done, most = False, 0
    while not done:
        rows = env.decision.candidates
        assert (rows["children"][rows["tokens"] > 0] >= 0).all()
        most = max(most, int(rows["children"].max()))
        _, _, done, _, _ = env.step(int(np.argmin(rows["children"])))
    assert most >= 3  # a prefix whose prompts have all been evicted is a leaf again


def test_marked__phases_end_when_every_leaf_is_marked():
    env = make(candidates=64, offered="recent")
    env.reset(seed=1)
    done, phases = False, set()
    while not done:
        decision = env.decision
        assert decision.unmarked == (decision.candidates["marked"] == 0).sum() >= 1
        phases.add(int(env.backend.engine.cache.workers["epoch"][0]))
        _, _, done, _, _ = env.step(int(np.argmin(decision.candidates["marked"])))
    assert len(phases) > 2


@pytest.mark.parametrize(("page", "tail", "dropped"), [(1, 20, 20), (16, 20, 32), (16, 1, 16), (1, None, None)])
def test_tail_tokens__are_whole_pages_of_the_leafs_end(page, tail, dropped):
    env = make(cluster=CLUSTER | {"page_size": page}, tail_tokens=tail)
    env.reset(seed=0)
    done = False
    while not done:
        before = env.backend.engine.cache.workers["evicted"].sum()
        size = int(env.decision.candidates[0]["tokens"])
        _, _, done, _, _ = env.step(0)
        freed = env.backend.engine.cache.workers["evicted"].sum() - before
        assert freed == (size if dropped is None else min(dropped, size))


@pytest.mark.parametrize(
    ("reward", "total"),
    [
        ("cache", lambda env: env.records()["hit_tokens"].sum()),
        ("latency", lambda env: -(env.records()["finish_s"] - env.records()["arrival_s"]).sum()),
        ("makespan", lambda env: -env.backend.stats()["makespan_load_s"]),
    ],
)
def test_return__equals_the_metric(reward, total):
    env = make(reward=reward)
    assert play(env, last)[0] == pytest.approx(float(total(env)))


@pytest.mark.parametrize("action", [-1, 5, 99, 10**30, None, "x", 1.9, float("nan")])
def test_invalid_action__evicts_the_first_candidate_and_is_counted(action):
    env, twin = make(candidates=5), make(candidates=5)
    for each in (env, twin):
        each.reset(seed=0)
    seen, expected = env.step(action)[4], twin.step(0)[4] | {"invalid_actions": 1}
    assert seen.pop("action_mask").tolist() == expected.pop("action_mask").tolist()
    assert seen == expected
    assert env.decision.candidates.tolist() == twin.decision.candidates.tolist()


@pytest.mark.slow
def test_masked_action__is_the_same_in_every_vector_env():
    vec = pytest.importorskip("stable_baselines3.common.vec_env")
    seen = []
    for kind in (vec.DummyVecEnv, vec.SubprocVecEnv):
        envs = kind([make_small] * 2)
        envs.seed(7)
        envs.reset()
        steps = []
        for _ in range(30):
            masks = np.stack(envs.env_method("action_masks"))
            observation, rewards, dones, infos = envs.step([7, 7])  # mostly no candidate there
            numbers = [(info["invalid_actions"], info["time_s"]) for info in infos]
            steps.append((masks.tolist(), rewards.tolist(), dones.tolist(), numbers, observation["cache"].tolist()))
        seen.append(steps)
        envs.close()
    assert seen[0] == seen[1] and seen[0][0][3][0][0] == 1


def make_small() -> EvictionEnv:
    return make(candidates=8)


def test_fork__plays_on_by_itself():
    env = make(routing="cache_aware")
    env.reset(seed=2)
    for _ in range(5):
        env.step(last(env))
    twin = env.fork()
    assert twin.action_masks().tolist() == env.action_masks().tolist()
    expected = [twin.step(0)[1:] for _ in range(15)]
    env.fork().step(last(env))
    assert repr([env.step(0)[1:] for _ in range(15)]) == repr(expected)


def test_episode__choices_matter_and_the_router_is_the_named_one():
    worst, best = make(), make()
    play(worst, lambda env: int(np.argmax(env.decision.candidates["children"])))
    play(best, lambda env: int(np.argmin(env.decision.candidates["children"])))
    assert best.records()["hit_tokens"].sum() > worst.records()["hit_tokens"].sum()
    assert sorted(best.records()["worker"].tolist()) == [0] * 24 + [1] * 24
    third = make(routing={"use": "session_affinity"})
    play(third)
    assert third.records()["worker"].tolist() != best.records()["worker"].tolist()


def test_render__shows_the_fleet():
    env = gymnasium.make("kvgym/Eviction-v0", workload=WORKLOAD, cluster=CLUSTER, render_mode="ansi")
    env.reset(seed=0)
    assert "w1" in env.render()


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        ({"candidates": 0}, ConfigError, "candidates must be a whole number from 1 to 4096, got 0"),
        ({"routing": "os:getcwd"}, ConfigError, r"'os:getcwd' has no reset\(\)"),
        ({"candidates": True}, ConfigError, "candidates must be a whole number"),
        ({"candidates": 10**6}, ConfigError, "from 1 to 4096"),
        ({"offered": "all"}, ConfigError, "offered must be one of recent, random, both, got 'all'"),
        ({"offered": ["recent"]}, ConfigError, "offered must be one of"),
        ({"tail_tokens": 0}, ConfigError, "tail_tokens must be a whole number from 1"),
        ({"tail_tokens": 2.5}, ConfigError, "tail_tokens must be a whole number"),
        ({"routing": "shortest_que"}, UnknownNameError, "did you mean 'shortest_queue'"),
        ({"routing": {"use": "lbgr", "options": {"nonsense": 1}}}, ConfigError, "does not take"),
        ({"routing": {"name": "lbgr"}}, ConfigError, "unknown key 'name' in routing"),
        ({"routing": 3}, ConfigError, "routing must be a map"),
        ({"reward": "cach"}, UnknownNameError, "did you mean 'cache'"),
        ({"render_mode": "human"}, ConfigError, "render_mode must be one of"),
    ],
)
def test_arguments__mistakes_are_explained(changes, error, message):
    with pytest.raises(error, match=message):
        make(**changes)


def test_reset__an_episode_without_evictions_is_an_error():
    with pytest.raises(SimulationError, match="no cache gets full"):
        make(cluster={"workers": 2, "capacity_tokens": 100_000}).reset(seed=0)
    with pytest.raises(SimulationError, match=r"each of the 100 episodes up to seed \d+ ends without"):
        make(cluster={"workers": 2, "capacity_tokens": 100_000}).reset(seed=0)
    with pytest.raises(SimulationError, match="the episode with seed 7 ends without"):
        make(cluster={"workers": 2, "capacity_tokens": 100_000}).reset(options={"seed": 7})
    env = make()
    with pytest.raises(SimulationError, match="call reset"):
        env.step(0)
    play(env)
    with pytest.raises(SimulationError, match="call reset"):
        env.step(0)
    with pytest.raises(ConfigError, match="the option 'seed'"):
        env.reset(options={"sed": 1})


EPISODE = """
import json, sys
import numpy as np
from controllers.eviction.learned import FEATURES, PER_UNIT, make_policy
from kvgym.backends.simulated import SimulatedBackend
from kvgym.config.cluster import resolve_cluster
from kvgym.config.loader import resolve_workload
from kvgym.envs.eviction import EvictionEnv

workload, cluster = json.loads(sys.argv[1])
env = EvictionEnv(workload, cluster, routing="round_robin", candidates=4, tail_tokens=24)
observation, _ = env.reset(options={"seed": 3})
seen, total, done = [], 0.0, False
while not done:
    rows = env.decision.candidates
    seen.append(rows.tolist())
    total += float(observation["candidates"].sum() + observation["cache"].sum())
    observation, _, done, _, _ = env.step(len(seen) * 7 % len(rows))
weights = np.linspace(-1, 1, FEATURES), np.linspace(-1, 1, 3 * PER_UNIT).reshape(3, PER_UNIT)
policy = make_policy(2, 3, 0, *(part.tolist() for part in weights))
backend = SimulatedBackend(resolve_workload(workload).generate(3, 1), resolve_cluster(cluster), policy, 3)
while (decision := backend.run_to_decision()) is not None:
    backend.apply(decision.request % 2)
hits = [each.records()["hit_tokens"].tolist() for each in (env, backend)]
print(json.dumps([seen, round(total, 3), hits]))
"""


def test_jit_off__gives_the_same_choices():
    runs = []
    for off in ("0", "1"):
        command = [sys.executable, "-W", "error", "-c", EPISODE, json.dumps([WORKLOAD, CLUSTER])]
        env = {**os.environ, "NUMBA_DISABLE_JIT": off}
        done = subprocess.run(command, env=env, cwd=ROOT, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        runs.append(json.loads(done.stdout))
    assert runs[0] == runs[1] and len(runs[0][0]) > 30


class OftenShort:
    """Every third episode (seed 0, 3, ...) is long enough to fill a cache."""

    def generate(self, seed: int, page_size: int = 1) -> Any:
        from kvgym.config.loader import resolve_workload

        prompts = 8 if seed % 3 == 0 else 1
        return resolve_workload(WORKLOAD | {"prompts_per_group": prompts}).generate(seed, page_size)


@pytest.mark.parametrize("seed", [0, 1, 2, 3])
def test_reset__a_drawn_episode_without_a_decision_gives_way_to_the_next_seed(seed):
    env = make()
    env._source = OftenShort()
    drawn = int(np.random.default_rng(seed).integers(2**31))
    for _ in range(3):
        _, info = env.reset(seed=seed)
        first = -(-drawn // 3) * 3
        assert (info["episode_seed"], info["skipped_episodes"]) == (first, first - drawn)
        assert env.step(0)[-1]["skipped_episodes"] == first - drawn
    seen, again = env.reset(seed=seed)[0], env.reset(options={"seed": first})[0]
    assert {name: rows.tolist() for name, rows in seen.items()} == {name: rows.tolist() for name, rows in again.items()}
