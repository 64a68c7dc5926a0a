from __future__ import annotations

import warnings

import numpy as np
import pytest

from kvgym.envs.joint import JointEnv

pytest.importorskip("pettingzoo")

from kvgym.envs.aec import ROUTER, JointAEC
from kvgym.errors import ConfigError, SimulationError

TINY = {
    "workload": {"source": "gsp", "groups": 6, "prompts_per_group": 5, "lens": [64, 128], "rate_rps": 30.0},
    "cluster": {"workers": 3, "capacity_tokens": 600},
    "candidates": 4,
}
ADVICE = "Observation|Agents have different|Your environment"
"""PettingZoo advises one array of one shape for all agents, and no observation of zeros (the last one is)."""


def test_api__passes_pettingzoos_tests():
    from pettingzoo.test import api_test, seed_test

    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", ADVICE)
        api_test(JointAEC(**TINY), num_cycles=300)
        seed_test(lambda: JointAEC(**TINY), num_cycles=60)


def test_agents__act_in_turn_as_in_the_joint_environment():
    team, alone = JointAEC(**TINY), JointEnv(**TINY)
    team.reset(options={"seed": 3})
    alone.reset(options={"seed": 3})
    acted, totals, expected = set(), dict.fromkeys(team.possible_agents, 0.0), 0.0
    rng = np.random.default_rng(0)
    for agent in team.agent_iter():
        seen, reward, ended, cut, _ = team.last()
        totals[agent] += reward
        assert team.observation_space(agent).contains(seen) and not cut
        if ended:
            team.step(None)
            continue
        worker = getattr(alone.decision, "worker", None)
        assert agent == (ROUTER if worker is None else f"evictor_{worker}")
        action = int(rng.choice(np.flatnonzero(seen["action_mask"])))
        assert alone.action_masks()[action]
        expected += alone.step(action)[1]
        team.step(action)
        acted.add(agent)
    assert acted == set(team.possible_agents) and team.agents == []
    assert totals == {agent: pytest.approx(expected) for agent in totals}
    assert team.env.records().tolist() == alone.records().tolist()


def test_mistakes__are_explained():
    team = JointAEC(**TINY)
    with pytest.raises(SimulationError, match=r"call reset\(\) first"):
        team.step(0)
    with pytest.raises(ConfigError, match="reset takes the options as a map, got 3"):
        team.reset(options=3)
