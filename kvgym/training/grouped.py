"""A wrapper for training makes a group share episodes, starts them late if wished, and sums them up at their end."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np

from kvgym.types import DONE


class TrainingEpisodes(gymnasium.Wrapper):
    """Draws episode seeds from `entropy`: environments with the same one meet the same requests at the same times.

    The last info of an episode holds ``episode_stats``, all numbers: the sum of each reward term
    (``reward/NAME``) and ``episode/`` mean_latency_s, p50_latency_s, p95_latency_s, hit_rate and invalid_actions. The
    seed and the options given to `reset` are not used.

    Args:
        env: a `kvgym/Routing-v0`, with any wrappers around it.
        entropy: whole numbers that determine the sequence of episodes.
        skip: requests of the very first episode that a `rule` routes before the training begins, so that environments
            stand at different points of their episodes.
        rule: environment -> something with stable-baselines3's `predict`; needed where `skip` is above 0.
    """

    def __init__(self, env: gymnasium.Env, entropy: list[int], skip: int = 0, rule: Any = None) -> None:
        super().__init__(env)
        self._rng = np.random.default_rng(entropy)
        self._skip = skip
        self._rule = rule
        self._terms: dict[str, float] = {}

    def reset(self, **kwargs: Any) -> tuple[Any, dict[str, Any]]:
        """Start the next episode."""
        observation, info = self.env.reset(options={"seed": int(self._rng.integers(2**31))})
        self._terms = {}
        skip, self._skip = self._skip, 0
        if skip == 0:
            return observation, info
        rule, terminated = self._rule(self.env), False
        for _ in range(skip):
            observation, _, terminated, _, info = self.env.step(rule.predict(observation)[0])
            if terminated:
                return self.reset()
        return observation, info

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """Step, and add up the reward's terms."""
        observation, reward, terminated, truncated, info = self.env.step(action)
        for term, value in info["rewards"].items():
            self._terms[f"reward/{term}"] = self._terms.get(f"reward/{term}", 0.0) + value
        if terminated or truncated:
            invalid = {"episode/invalid_actions": float(info["invalid_actions"])}
            info["episode_stats"] = self._terms | self._served() | invalid
        return observation, reward, terminated, truncated, info

    def _served(self) -> dict[str, float]:
        """Return numbers of the requests that were served, none if there were none."""
        records = self.env.unwrapped.records()  # type: ignore[attr-defined]
        done = records[records["status"] == DONE]
        if len(done) == 0:
            return {}
        latency_s = done["finish_s"] - done["arrival_s"]
        p50_s, p95_s = np.percentile(latency_s, (50, 95)).tolist()
        hit_rate = float(done["hit_tokens"].sum() / done["prompt_tokens"].sum())
        return {
            "episode/mean_latency_s": float(latency_s.mean()),
            "episode/p50_latency_s": p50_s,
            "episode/p95_latency_s": p95_s,
            "episode/hit_rate": hit_rate,
        }
