"""A compiled policy and the rule that plays it through Eviction-v0 are one and the same."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from controllers.victims import RULES, VictimController
from kvgym.backends.simulated import SimulatedBackend
from kvgym.config.cluster import resolve_cluster
from kvgym.config.loader import resolve_workload
from kvgym.control import ControllerPolicy
from kvgym.envs.eviction import EvictionEnv
from kvgym.errors import UnknownNameError
from kvgym.workloads.base import Workload

WORKLOAD = {"source": "gsp", "groups": 12, "prompts_per_group": 16, "lens": [64, 128], "rate_rps": 60.0}
CHATS = {
    "source": "fixed",
    "rows": [
        {
            "path": [[i % 4, 30], [f"chat {i}", 20 + i % 7], *([["a", 5], ["again", 20]] if turn else [])],
            "session": i,
            "arrival_s": 0.0 if turn else 0.2 * i,
            "think_s": 1.0,
            "output_tokens": 3 + i % 9,
            "priority": i % 3,
        }
        for i in range(40)
        for turn in range(2)
    ],
}
PLAIN = {"workers": 2, "capacity_tokens": 1500}
PAGED = {"workers": 2, "capacity_tokens": 400, "page_size": 4, "ignore_eos": False, "engine": "sglang-0.4.6"}
EVERY_LEAF = 1024


class Once:
    """Generates one workload whatever the seed, so that seeds are the engine's alone."""

    def __init__(self, workload: Workload) -> None:
        self.workload = workload

    def generate(self, seed: int, page_size: int) -> Workload:
        return self.workload


def compiled(policy: str, workload: Workload, cluster: Any, seed: int) -> SimulatedBackend:
    backend = SimulatedBackend(workload, resolve_cluster(cluster), policy, seed)
    turn = 0
    while backend.run_to_decision() is not None:
        backend.apply(turn % len(backend.spec.capacity_tokens))
        turn += 1
    return backend


def played(rule: str, env: EvictionEnv, seed: int) -> EvictionEnv:
    observation, _ = env.reset(options={"seed": seed})
    policy, done = ControllerPolicy(VictimController(rule), env), False
    while not done:
        observation, _, done, _, info = env.step(policy.predict(observation)[0])
    assert info["invalid_actions"] == 0
    return env


@pytest.mark.parametrize("rule", [rule for rule in RULES if rule not in ("random_leaf", "rlt")])
@pytest.mark.parametrize(("workload", "cluster"), [(WORKLOAD, PLAIN), (CHATS, PAGED)], ids=["gsp", "chats"])
def test_rule__gives_the_records_of_the_compiled_policy(rule, workload, cluster):
    # LRU is exact with any number of places.
    env = EvictionEnv(workload, cluster, routing="round_robin", candidates=3 if rule == "lru" else EVERY_LEAF)
    source = resolve_workload(workload)
    for seed in (0, 1):
        backend = compiled(rule, source.generate(seed, env._cluster.page_size), cluster, seed)
        assert backend.engine.cache.workers["evicted"].min() > 0
        again = played(rule, env, seed)
        assert again.records().tolist() == backend.records().tolist()
        assert again.backend.stats() == backend.stats()


def distance(a: np.ndarray, b: np.ndarray) -> float:
    """Two-sample Kolmogorov-Smirnov statistic."""
    values = np.union1d(a, b)
    shares = (np.searchsorted(np.sort(x), values, "right") / len(x) for x in (a, b))
    return float(np.abs(np.subtract(*shares)).max())


@pytest.mark.soak
def test_rlt__gives_the_distribution_of_the_compiled_policy():
    cluster, seeds = {"workers": 1, "capacity_tokens": 960, "page_size": 32}, range(200)
    fields = {"groups": 6, "prompts_per_group": 8, "lens": [128, 256, 384], "output_tokens": 2, "rate_rps": 4.0}
    load = resolve_workload({"source": "gsp", **fields}).generate(3, 32)
    env = EvictionEnv(cluster=cluster, routing="round_robin", candidates=EVERY_LEAF, tail_tokens=32)
    env._source = Once(load)

    def measured(backend: Any) -> tuple[float, float]:
        records = backend.records()
        return float(records["hit_tokens"].sum()), float((records["finish_s"] - records["arrival_s"]).sum())

    truth, other = (
        np.array([measured(compiled(name, load, cluster, s)) for s in seeds]) for name in ("rlt", "random_leaf")
    )
    through = np.array([measured(played("rlt", env, seed)) for seed in seeds])
    limit = 1.63 * np.sqrt(2 / len(seeds))  # 1 %
    for column in range(2):
        assert len(np.unique(truth[:, column])) > 5
        assert distance(truth[:, column], through[:, column]) < limit
        assert distance(other[:, column], through[:, column]) > limit  # the test would see a difference


def test_unknown_rule__names_the_nearest():
    with pytest.raises(UnknownNameError, match="did you mean 'lru'"):
        VictimController("lruu")
