"""A training run of an eviction policy has an environment, an algorithm, validation and a comparison."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kvgym.config.options import build, option
from kvgym.encoding.offers import MOST_UNITS
from kvgym.errors import ConfigError
from kvgym.harness.compare.grid import load_compare
from kvgym.harness.compare.plan import make_plan
from kvgym.training.command import comparison
from kvgym.training.router_training import PPOConfig


@dataclass(frozen=True)
class EvictionEnvConfig:
    """Arguments of kvgym/Eviction-v0.

    With whole leaves of very different size a step is worth more the more it frees, and a discount per step then pays
    for evicting large leaves; `tail_tokens` makes steps equal.
    """

    workload: str | dict[str, Any] = option("gsp_default", "preset, path or map")
    cluster: str | dict[str, Any] = option("l40x4", "preset, path or map")
    reward: str | dict[str, Any] = option("cache", "reward term, or term -> weight or {weight, options}")
    routing: str = option("shortest_queue", "who routes")
    candidates: int = option(16, "leaves on offer")
    offered: str = option("both", "which: recent, random or both")
    tail_tokens: int | None = option(None, "what a choice evicts; none: the whole leaf", "tokens")


_PPO = PPOConfig(n_steps=256, batch_size=256, learning_rate=1e-3, gamma=0.97, gae_lambda=0.95, ent_coef=0.005)


@dataclass(frozen=True)
class EvictionTrainConfig:
    """One training run.

    gamma 0.97 looks some 33 evictions ahead: about as long as a small cache takes to show what an eviction has cost.
    Larger caches need more, and many more steps.
    """

    name: str
    env: EvictionEnvConfig = EvictionEnvConfig()
    steps: int = option(50_000, "environment steps in all")
    seed: int = option(0, "of weights, actions and training episodes")
    envs: int = option(8, "environments")
    units: int = option(8, "hidden units of the scorer")
    ppo: PPOConfig = _PPO
    every: int = option(5_000, "steps between validations, which choose the best policy by its hit rate")
    validation_seeds: tuple[int, ...] = option((1_000_000, 1_000_001, 1_000_002, 1_000_003), "episode seeds")
    test_seeds: tuple[int, ...] = option(tuple(range(2_000_000, 2_000_006)), "episode seeds of the comparison")
    against: tuple[str, ...] = option(("random_leaf", "lru", "rlt"), "eviction policies; the first is the baseline")

    def __post_init__(self) -> None:
        if min(self.steps, self.envs, self.units, self.every) < 1:
            raise ConfigError(
                "steps, envs, units and every must be at least 1, "
                f"got {self.steps}, {self.envs}, {self.units} and {self.every}"
            )
        if self.units > MOST_UNITS:
            raise ConfigError(f"units must be at most {MOST_UNITS}, got {self.units}")
        if min(self.seed, *self.validation_seeds, *self.test_seeds, 0) < 0:
            raise ConfigError("seed, validation_seeds and test_seeds must be whole numbers >= 0")
        seeds = set(self.validation_seeds) & set(self.test_seeds)
        if seeds or not (self.validation_seeds and self.test_seeds):
            raise ConfigError("validation_seeds and test_seeds must be two sets without a common seed, neither empty")
        if not self.against:
            raise ConfigError("against must name at least one eviction policy")

    def comparison(self, eviction: Sequence[str], seeds: Sequence[int]) -> dict[str, Any]:
        """Return the comparison (plain, see `CompareConfig`) of eviction policies on the environment."""
        return comparison(self.name, self.env, seeds, routing=[self.env.routing], eviction=list(eviction))


def load_eviction_training(data: Mapping[str, Any]) -> EvictionTrainConfig:
    """Return the checked training run for plain `data`.

    Raises:
        ConfigError: an unknown key or a wrong value at any depth.
        UnknownNameError: no such workload, fleet, router or eviction policy.
    """
    config = build(EvictionTrainConfig, data, "train")
    make_plan(load_compare(config.comparison(config.against, config.test_seeds)))
    return config
