from __future__ import annotations

import json

import numpy as np
import pytest

pytest.importorskip("sb3_contrib")

import torch

from controllers.eviction import EVICTION
from controllers.eviction.learned import COLUMNS
from controllers.learned.candidate_policy import CandidatePolicy, write_scorer
from kvgym.envs.eviction import EvictionEnv

WORKLOAD = {"source": "gsp", "groups": 8, "prompts_per_group": 16, "lens": [64, 128], "rate_rps": 10.0}


@pytest.fixture(scope="module")
def env():
    env = EvictionEnv(WORKLOAD, {"workers": 2, "capacity_tokens": 600}, routing="round_robin", candidates=6)
    env.reset(seed=0)
    return env


@pytest.fixture
def policy(env):
    torch.manual_seed(1)
    policy = CandidatePolicy(env.observation_space, env.action_space, lambda _: 1e-3, units=3)
    with torch.no_grad():
        for part in policy.mlp_extractor.parameters():
            part.normal_()
    return policy


def test_scores__do_not_depend_on_the_other_places(env, policy):
    observation, *_ = env.step(0)
    turned = {**observation, "candidates": observation["candidates"][::-1].copy()}
    both = {name: np.stack((observation[name], turned[name])) for name in observation}
    tensors = policy.obs_to_tensor(both)[0]
    scores = policy.mlp_extractor.forward_actor(policy.extract_features(tensors)).detach().numpy()
    assert scores[0] == pytest.approx(scores[1][::-1], abs=1e-5) and np.ptp(scores[0]) > 0.1


def test_written_scorer__evicts_what_the_policy_chooses(env, policy, tmp_path):
    from kvgym.backends.simulated import SimulatedBackend
    from kvgym.config.cluster import resolve_cluster
    from kvgym.config.loader import resolve_workload

    path = tmp_path / "scorer.json"
    write_scorer(policy, 3, 3, 0, path)
    assert json.loads(path.read_text())["columns"] == list(COLUMNS) and "open" not in COLUMNS
    observation, _ = env.reset(options={"seed": 4})
    done = False
    while not done:
        action, _ = policy.predict(observation, action_masks=env.action_masks(), deterministic=True)
        observation, _, done, _, info = env.step(action)
    assert info["invalid_actions"] == 0
    load = resolve_workload(WORKLOAD).generate(4, 1)
    cluster = resolve_cluster({"workers": 2, "capacity_tokens": 600})
    backend, turn = SimulatedBackend(load, cluster, str(path), 4), 0
    while backend.run_to_decision() is not None:
        backend.apply(turn % 2)
        turn += 1
    assert backend.records().tolist() == env.records().tolist()
    assert isinstance(EVICTION.load(str(path)).constants, tuple)


def test_saved_model__keeps_its_network(env, policy, tmp_path):
    policy.save(tmp_path / "policy.pt")
    again = CandidatePolicy.load(tmp_path / "policy.pt")
    assert again.units == 3
    observation, *_ = env.reset(seed=1)
    masks = env.action_masks()
    assert (
        again.predict(observation, action_masks=masks, deterministic=True)[0]
        == (policy.predict(observation, action_masks=masks, deterministic=True)[0])
    )
