"""An environment wrapper adds the ``work`` rows to the observation of a routing environment."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from controllers.learned.work_rows import WorkRows, work_space


class WorkObservation(gymnasium.Wrapper):
    """Adds ``work`` (workers, 9) to the observation: see `controllers.learned.work_rows.WORK_FEATURES`.

    Everything in it is known to a router without engine metrics. Uses `decision`, `fleet` and `completed` of
    `env.unwrapped`. The rows after the last request are all 0.

    Args:
        env: a `kvgym/Routing-v0`, with any wrappers that leave actions and observations alone.
    """

    def __init__(self, env: gymnasium.Env) -> None:
        super().__init__(env)
        own = {"work": work_space(int(env.action_space.n))}  # type: ignore[attr-defined]
        self.observation_space = spaces.Dict({**env.observation_space.spaces, **own})  # type: ignore[attr-defined]

    def reset(self, **kwargs: Any) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
        """Start an episode with an empty account of the workers."""
        observation, info = self.env.reset(**kwargs)
        self._rows = WorkRows(self.env.unwrapped.fleet)  # type: ignore[attr-defined]
        return self._with_rows(observation), info

    def step(self, action: Any) -> tuple[dict[str, np.ndarray], Any, bool, bool, dict[str, Any]]:
        """Step, and note where the request went and what has ended."""
        env: Any = self.env.unwrapped
        decision = env.decision
        observation, reward, terminated, truncated, info = self.env.step(action)
        worker = int(action)
        if not (0 <= worker < len(decision.mask) and decision.mask[worker]):
            worker = int(np.argmax(decision.mask))  # what the environment does with an invalid action
        self._rows.send(decision, worker)
        self._rows.observe(env.completed)
        return self._with_rows(observation), reward, terminated, truncated, info

    def _with_rows(self, observation: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        decision = self.env.unwrapped.decision  # type: ignore[attr-defined]
        space = self.observation_space["work"]  # type: ignore[index]
        rows = np.zeros(space.shape, np.float32) if decision is None else self._rows.rows(decision)
        return {**observation, "work": rows}
