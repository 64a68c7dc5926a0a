"""PettingZoo's names for Joint-v0, its parallel form, and the state that all agents share."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest

pytest.importorskip("pettingzoo")

from kvgym.envs import joint_v0
from kvgym.envs.joint import JointEnv
from kvgym.errors import ConfigError, SimulationError

TINY: dict[str, Any] = {
    "workload": {"source": "gsp", "groups": 6, "prompts_per_group": 5, "lens": [64, 128], "rate_rps": 30.0},
    "cluster": {"workers": 3, "capacity_tokens": 600},
    "candidates": 4,
}
ADVICE = "Observation|Agents have different|Your environment|No such"


def test_env__passes_the_api_test_and_keeps_order():
    from pettingzoo.test import api_test, seed_test

    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", ADVICE)
        api_test(joint_v0.env(**TINY), num_cycles=200)
        seed_test(lambda: joint_v0.env(**TINY), num_cycles=40)
    env = joint_v0.env(**TINY)
    with pytest.raises(Exception, match="reset"):
        env.step(0)


def test_parallel_env__passes_the_api_test():
    from pettingzoo.test import parallel_api_test, parallel_seed_test

    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", ADVICE)
        parallel_api_test(joint_v0.parallel_env(**TINY), num_cycles=200)
        parallel_seed_test(lambda: joint_v0.parallel_env(**TINY), num_cycles=40)


def test_parallel_env__plays_what_the_joint_environment_plays():
    team, alone = joint_v0.parallel_env(**TINY), JointEnv(**TINY)
    seen, infos = team.reset(options={"seed": 3})
    alone.reset(options={"seed": 3})
    rng, total, expected, heard = np.random.default_rng(0), 0.0, 0.0, set()
    while team.agents:
        (agent,) = [name for name in team.agents if infos[name]["turn"]]
        masks = {name: seen[name]["action_mask"] for name in team.agents}
        assert all(mask.tolist() == [1] + [0] * (len(mask) - 1) for name, mask in masks.items() if name != agent)
        actions = {name: int(rng.choice(np.flatnonzero(mask))) for name, mask in masks.items()}
        expected += alone.step(actions[agent])[1]
        seen, rewards, ends, cuts, infos = team.step(actions)
        assert len(set(rewards.values())) == 1 and not any(cuts.values())
        total += rewards[agent]
        heard.add(agent)
    assert all(ends.values()) and heard == set(team.possible_agents)
    assert not any(info["turn"] for info in infos.values())
    assert total == expected
    assert team.team.env.records().tolist() == alone.records().tolist()


@pytest.mark.parametrize("make", [joint_v0.env, joint_v0.raw_env, joint_v0.parallel_env])
def test_state__says_whose_turn_it_is_and_what_each_agent_sees(make):
    env = make(**TINY)
    env.reset(seed=0)
    team = getattr(env, "team", env.unwrapped)
    agents = team.possible_agents
    for _ in range(40):
        state = env.state()
        assert env.unwrapped.state_space.contains(state)
        assert state[: len(agents)].tolist() == [float(name == team.agent_selection) for name in agents]
        assert np.array_equal(
            state[len(agents) :], np.concatenate([team.observe(name)["observation"] for name in agents])
        )
        mask = team.observe(team.agent_selection)["action_mask"]
        action = int(np.flatnonzero(mask)[-1])
        env.step({team.agent_selection: action} if make is joint_v0.parallel_env else action)
    while not any(team.terminations.values()):
        env.step({team.agent_selection: 0} if make is joint_v0.parallel_env else 0)
    assert not env.state().any() and env.unwrapped.state_space.contains(env.state())


def test_parallel_env__mistakes_are_explained():
    team = joint_v0.parallel_env(**TINY)
    with pytest.raises(SimulationError, match=r"call reset\(\) first"):
        team.step({})
    team.reset(seed=0)
    with pytest.raises(ConfigError, match="needs the action of 'router_0'"):
        team.step({"evictor_0": 0})
