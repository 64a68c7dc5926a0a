"""Joint-v0 as a PettingZoo parallel environment: all agents answer at each step, and one of them is heard."""

from __future__ import annotations

from typing import Any

import numpy as np
from gymnasium import spaces

from kvgym.envs.aec import JointAEC
from kvgym.errors import ConfigError, MissingDependencyError, SimulationError

try:
    from pettingzoo import ParallelEnv
except ImportError as error:
    raise MissingDependencyError("this needs PettingZoo; pip install 'kvgym[pettingzoo]'") from error


class JointParallel(ParallelEnv):
    """The agents of `kvgym.envs.aec.JointAEC`, asked all at once.

    Decisions come one at a time, so of all actions that of the agent whose decision it is counts, and the others are
    ignored; ``infos[agent]["turn"]`` says whose it is, 1 or 0. Agents that are not heard see their last observation
    with a mask that leaves action 0 only, so that their choice carries no log-probability. Rewards, ends, illegal
    actions, `state` and the arguments are those of `JointAEC`.
    """

    metadata: dict[str, Any] = {**JointAEC.metadata, "is_parallelizable": True}  # noqa: RUF012 - declared so by ParallelEnv

    def __init__(self, render_mode: str | None = None, **kwargs: Any) -> None:
        self.team = JointAEC(render_mode=render_mode, **kwargs)
        self.render_mode = render_mode
        self.possible_agents = self.team.possible_agents
        self.agents: list[str] = []
        self.observation_spaces, self.action_spaces = self.team.observation_spaces, self.team.action_spaces
        self.state_space = self.team.state_space

    def observation_space(self, agent: str) -> spaces.Space:
        """Return the space of an agent's observations."""
        return self.observation_spaces[agent]

    def action_space(self, agent: str) -> spaces.Space:
        """Return the space of an agent's actions."""
        return self.action_spaces[agent]

    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[dict, dict]:
        """Start an episode; return observations and infos by agent."""
        self.team.reset(seed=seed, options=options)
        self.agents = list(self.possible_agents)
        return self._observations(), self._infos()

    def step(self, actions: dict[str, Any]) -> tuple[dict, dict, dict, dict, dict]:
        """Let the agent whose decision it is act; return observations, rewards, two kinds of ends, and infos by agent.

        Raises:
            ConfigError: the agent whose turn it is has no action.
            SimulationError: there is no episode.
        """
        if not self.agents:
            raise SimulationError("there is nothing to decide; call reset() first")
        agent = self.team.agent_selection
        if agent not in actions:
            raise ConfigError(f"step needs the action of {agent!r}, whose turn it is; got those of {sorted(actions)}")
        self.team.step(actions[agent])
        ends, cuts = dict(self.team.terminations), dict(self.team.truncations)
        found = self._observations(), dict(self.team.rewards), ends, cuts, self._infos()
        if all(ends.values()):
            self.agents = []
        return found

    def state(self) -> np.ndarray:
        """Return what all agents see, in one row (see `JointAEC.state`)."""
        return self.team.state()

    def render(self) -> Any:
        """Return the picture that `render_mode` asks for."""
        return self.team.render()

    def close(self) -> None:
        """Nothing to give up."""

    def _observations(self) -> dict[str, dict[str, np.ndarray]]:
        """Return the agents' observations; the masks of those that are not heard leave action 0."""
        heard, seen = self.team.agent_selection, {}
        over = any(self.team.terminations.values())
        for agent in self.possible_agents:
            last = self.team.observe(agent)
            mask = last["action_mask"] if agent == heard or over else np.zeros_like(last["action_mask"])
            if agent != heard and not over:
                mask[0] = 1
            seen[agent] = {"observation": last["observation"], "action_mask": mask}
        return seen

    def _infos(self) -> dict[str, dict[str, Any]]:
        heard = None if any(self.team.terminations.values()) else self.team.agent_selection
        return {agent: info | {"turn": int(agent == heard)} for agent, info in self.team.infos.items()}
