from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from controllers.joint import JointController
from controllers.routing.round_robin import RoundRobin
from controllers.victims import VictimController
from kvgym.backends.simulated import SimulatedBackend
from kvgym.config.cluster import resolve_cluster
from kvgym.config.loader import resolve_workload
from kvgym.control import ControllerPolicy
from kvgym.encoding.decisions import encode
from kvgym.encoding.offers import encode_eviction
from kvgym.envs.joint import JointEnv
from kvgym.types import Decision

WORKLOAD = {"source": "gsp", "groups": 6, "prompts_per_group": 8, "lens": [64, 128], "rate_rps": 30.0}
CLUSTER = {"workers": 3, "capacity_tokens": 500}


def make(**changes: Any) -> JointEnv:
    return JointEnv(**{"workload": WORKLOAD, "cluster": CLUSTER, "candidates": 4, **changes})


def test_controller__of_router_and_evictor_plays_as_the_simulator_with_both():
    env = make(offered="recent")
    policy = ControllerPolicy(JointController(RoundRobin(), VictimController("lru")), env)
    observation, _ = env.reset(options={"seed": 5})
    done = False
    while not done:
        observation, _, done, _, info = env.step(policy.predict(observation)[0])
    backend = SimulatedBackend(resolve_workload(WORKLOAD).generate(5, 1), resolve_cluster(CLUSTER), "lru", 5)
    backend.engine.run_rule(0)
    assert env.records().tolist() == backend.records().tolist()
    assert info["invalid_actions"] == 0 and backend.engine.cache.workers["evicted"].min() > 0


def test_observation__shows_one_kind_at_a_time_and_masks_follow():
    env = make(candidates=5, reward="latency")
    observation, _ = env.reset(seed=1)
    kinds, total, done = [], 0.0, False
    while not done:
        decision, mask = env.decision, env.action_masks()
        route = isinstance(decision, Decision)
        shown = encode(decision) if route else encode_eviction(decision)
        hidden = ("cache", "candidates") if route else ("request", "workers")
        assert observation["kind"].tolist() == [float(route), float(not route)]
        assert all((observation[name] == shown[name]).all() for name in shown)
        assert not any(observation[name].any() for name in hidden)
        assert (
            mask.sum() == decision.mask.sum() and mask.shape == (5,) and (not route or mask.tolist()[3:] == [False] * 2)
        )
        kinds.append(route)
        observation, reward, done, _, _ = env.step(int(np.flatnonzero(mask)[-1]))
        total += reward
    records = env.records()
    assert kinds[0] and 0 < sum(kinds) == 48 < len(kinds)
    assert total == pytest.approx(-(records["finish_s"] - records["arrival_s"]).sum())
    assert not any(array.any() for array in observation.values()) and env.action_masks().all()


def test_invalid_action__becomes_the_first_allowed_one():
    env = make(candidates=2)
    env.reset(seed=0)
    _, _, _, _, info = env.step(2)
    assert info["invalid_actions"] == 0
    while isinstance(env.decision, Decision):
        env.step(0)
    twin = env.fork()
    assert env.step(2)[4]["invalid_actions"] == 1
    twin.step(0)
    assert (twin.backend.engine.cache.workers["evicted"] == env.backend.engine.cache.workers["evicted"]).all()
