"""Joint-v0 is a PettingZoo AEC environment here: one agent routes, and each worker has an evictor."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from gymnasium import spaces

from kvgym.encoding.decisions import encode, observation_space
from kvgym.encoding.offers import encode_eviction, eviction_space
from kvgym.envs.joint import JointEnv
from kvgym.errors import MissingDependencyError, SimulationError
from kvgym.types import Decision

try:
    from pettingzoo import AECEnv
except ImportError as error:
    raise MissingDependencyError("this needs PettingZoo; pip install 'kvgym[pettingzoo]'") from error

ROUTER = "router_0"


class JointAEC(AECEnv):
    """The agent ``router_0`` sends requests to workers; ``evictor_N`` chooses the victims on worker N.

    Whose decision comes next acts next. An agent's observation is a Dict: ``observation``, the arrays of Routing-v0 or
    Eviction-v0 in one row (float32, in the order of their tables), and ``action_mask`` (int8). Until its next turn an
    agent keeps seeing its last observation; before its first turn and at the end it is all 0 with all actions allowed.
    The agents are a team: each step's reward goes to all of them. They end together.

    Illegal actions are those of Joint-v0: the first allowed one is taken and ``infos[agent]["invalid_actions"]``
    counts it for the whole team.

    Args:
        render_mode: as for Joint-v0.
        kwargs: the other arguments of `kvgym.envs.joint.JointEnv`.
    """

    state_space: spaces.Box
    metadata: dict[str, Any] = {"name": "joint_v0", "is_parallelizable": False, **JointEnv.metadata}  # noqa: RUF012 - declared so by AECEnv

    def __init__(self, render_mode: str | None = None, **kwargs: Any) -> None:
        super().__init__()
        self.render_mode = render_mode
        self.env = JointEnv(render_mode=render_mode, **kwargs)
        workers, places = self.env.fleet_workers, self.env.places
        evictors = [f"evictor_{w}" for w in range(workers)]
        self.possible_agents = [ROUTER, *evictors]
        self.agents: list[str] = []
        route, evict = _flat_space(observation_space(workers), workers), _flat_space(eviction_space(places), places)
        self.observation_spaces = {ROUTER: route} | {name: evict for name in evictors}
        self.action_spaces = {ROUTER: spaces.Discrete(workers)} | {name: spaces.Discrete(places) for name in evictors}
        own: list[Any] = [self.observation_spaces[name]["observation"] for name in self.possible_agents]
        turn = np.ones(len(own), np.float32)
        low = np.concatenate([0 * turn, *(box.low for box in own)])
        self.state_space = spaces.Box(low, np.concatenate([turn, *(box.high for box in own)]), dtype=np.float32)
        self._seen: dict[str, dict[str, np.ndarray]] = {}

    def observation_space(self, agent: str) -> spaces.Space:
        """Return the space of an agent's observations."""
        return self.observation_spaces[agent]

    def action_space(self, agent: str) -> spaces.Space:
        """Return the space of an agent's actions."""
        return self.action_spaces[agent]

    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> None:
        """Start an episode; of the options only ``seed`` counts (see `JointEnv.reset`)."""
        known = {k: v for k, v in options.items() if k == "seed"} if isinstance(options, Mapping) else options
        _, info = self.env.reset(seed=seed, options=known)
        self.agents = list(self.possible_agents)
        self.rewards = dict.fromkeys(self.agents, 0.0)
        self._cumulative_rewards = dict.fromkeys(self.agents, 0.0)
        self.terminations = dict.fromkeys(self.agents, False)
        self.truncations = dict.fromkeys(self.agents, False)
        self.infos = {name: dict(info) for name in self.agents}
        self._seen = {name: self._nothing(name) for name in self.agents}
        self._turn()

    def step(self, action: Any) -> None:
        """Let the selected agent act; None for one whose episode has ended."""
        if not self.agents:
            raise SimulationError("there is nothing to decide; call reset() first")
        agent = self.agent_selection
        if self.terminations[agent]:
            self._was_dead_step(action)
            return
        self._cumulative_rewards[agent] = 0.0
        _, reward, ended, _, info = self.env.step(action)
        self.rewards = dict.fromkeys(self.agents, reward)
        self.infos = {name: dict(info) for name in self.agents}
        if ended:
            self.terminations = dict.fromkeys(self.agents, True)
            self._seen = {name: self._nothing(name) for name in self.agents}
        else:
            self._turn()
        self._accumulate_rewards()
        self._deads_step_first()

    def observe(self, agent: str) -> dict[str, np.ndarray]:
        """Return what an agent sees."""
        return self._seen[agent]

    def state(self) -> np.ndarray:
        """Return what all agents see, for training with a central critic: float32, the shape of `state_space`.

        First whose turn it is (one number per agent, 1 for that one, all 0 at the end), then each agent's last
        observation, in the order of `possible_agents`.
        """
        over = not self.agents or any(self.terminations.values())
        turn = [float(name == self.agent_selection and not over) for name in self.possible_agents]
        rows = [self._seen[name]["observation"] for name in self.possible_agents]
        return np.concatenate([np.array(turn, np.float32), *rows])

    def render(self) -> Any:
        """Return the picture that `render_mode` asks for."""
        return self.env.render()

    def close(self) -> None:
        """Nothing to give up."""

    def _turn(self) -> None:
        """Select the agent whose decision comes next, and show it what it is about."""
        decision = self.env.decision
        assert decision is not None, "the episode goes on"
        route = isinstance(decision, Decision)
        self.agent_selection = ROUTER if isinstance(decision, Decision) else f"evictor_{decision.worker}"
        arrays = encode(decision) if isinstance(decision, Decision) else encode_eviction(decision)
        names = ("request", "workers") if route else ("cache", "candidates")
        flat = np.concatenate([arrays[name].ravel() for name in names])
        self._seen[self.agent_selection] = {"observation": flat, "action_mask": decision.mask.astype(np.int8)}

    def _nothing(self, agent: str) -> dict[str, np.ndarray]:
        parts: Any = self.observation_spaces[agent]
        shape = parts["observation"].shape
        return {"observation": np.zeros(shape, np.float32), "action_mask": np.ones(parts["action_mask"].shape, np.int8)}


def _flat_space(parts: spaces.Dict, actions: int) -> spaces.Dict:
    """Return the space of one row of all arrays, in the order of `parts`, and a mask."""
    boxes: list[Any] = [parts[name] for name in parts]
    low, high = (np.concatenate([getattr(box, end).ravel() for box in boxes]) for end in ("low", "high"))
    mask = spaces.Box(0, 1, (actions,), np.int8)
    return spaces.Dict({"observation": spaces.Box(low, high, dtype=np.float32), "action_mask": mask})
