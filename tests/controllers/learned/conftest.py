"""A small environment, and models for it that were never trained."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import gymnasium
import pytest

import kvgym
from controllers.learned.work_observation import WorkObservation

WORKLOAD = {"source": "gsp", "groups": 6, "prompts_per_group": 5, "lens": [64, 128], "rate_rps": 30.0}


@pytest.fixture
def make() -> Callable[..., gymnasium.Env]:
    """Return a function that makes an environment of thirty requests, with the work rows unless told otherwise."""

    def make(workers: int = 3, work_rows: bool = True) -> gymnasium.Env:
        kvgym.register_envs()
        cluster = {"workers": workers, "capacity_tokens": 600}
        env = gymnasium.make("kvgym/Routing-v0", workload=WORKLOAD, cluster=cluster)
        return WorkObservation(env) if work_rows else env

    return make


@pytest.fixture
def save(make, tmp_path) -> Callable[..., Any]:
    """Return a function that saves a PPO model with a set policy for so many workers and returns the file."""

    def save(workers: int = 3, work_rows: bool = True, seed: int = 0, **policy: Any) -> Any:
        from stable_baselines3 import PPO

        from controllers.learned.set_policy import SetPolicy

        path = tmp_path / f"set{workers}{work_rows}{seed}.zip"
        PPO(SetPolicy, make(workers, work_rows), seed=seed, n_steps=32, batch_size=32, policy_kwargs=policy).save(path)
        return path

    return save
