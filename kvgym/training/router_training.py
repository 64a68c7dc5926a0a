"""A training run of a router has an environment, an algorithm, validation and a comparison."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kvgym.config.options import build, option
from kvgym.errors import ConfigError
from kvgym.harness.compare.grid import load_compare
from kvgym.harness.compare.plan import make_plan
from kvgym.training.command import comparison


@dataclass(frozen=True)
class EnvConfig:
    """Arguments of kvgym/Routing-v0."""

    workload: str | dict[str, Any] = option("gsp_default", "preset, path or map; {source: varied} changes per episode")
    cluster: str | dict[str, Any] = option("l40x4", "preset, path or map")
    reward: str | dict[str, Any] = option("latency", "reward term, or term -> weight or {weight, options}")
    eviction: str = option("lru", "eviction policy of the workers")


@dataclass(frozen=True)
class PPOConfig:
    """Arguments of stable-baselines3's PPO.

    gamma 0.999 looks 1,000 arrivals ahead (83 s at 12 requests/s). With 0.99 or 0.995 a queue that never empties is a
    constant which no choice within the horizon changes; the policy then learns to give up a worker: all long requests
    go there, everything else is fast, and only mean and P95 tell.
    """

    n_steps: int = option(128, "steps per environment and update")
    batch_size: int = option(512, "minibatch", "steps")
    n_epochs: int = option(4, "passes over the data of an update")
    learning_rate: float = option(5e-4, "Adam's step size")
    gamma: float = option(0.999, "discount per arrival")
    gae_lambda: float = option(0.98, "bias against variance of the advantages; 50 arrivals")
    clip_range: float = option(0.2, "largest change of a probability ratio that pays")
    ent_coef: float = option(0.003, "weight of the entropy")
    vf_coef: float = option(0.5, "weight of the value loss")
    max_grad_norm: float = option(0.5, "gradient clipping")

    def __post_init__(self) -> None:
        if not (0 <= self.gamma <= 1 and 0 <= self.gae_lambda <= 1):
            raise ConfigError(f"gamma and gae_lambda must be in 0..1, got {self.gamma} and {self.gae_lambda}")
        if self.batch_size < 2 or self.n_steps < 1 or self.n_epochs < 1 or self.learning_rate <= 0:
            raise ConfigError(
                "batch_size must be at least 2, n_steps and n_epochs at least 1 and learning_rate above 0, "
                f"got {self.batch_size}, {self.n_steps}, {self.n_epochs} and {self.learning_rate}"
            )


@dataclass(frozen=True)
class ValidationConfig:
    """Greedy runs that choose the checkpoint: by the geometric mean of mean latency and P95, never by P50 alone."""

    seeds: tuple[int, ...] = option((1_000_000, 1_000_001, 1_000_002), "episode seeds")
    every: int = option(50_000, "steps between validations")
    workload: str | dict[str, Any] | None = option(None, "none: the environment's")


@dataclass(frozen=True)
class TestConfig:
    """The comparison at the end."""

    seeds: tuple[int, ...] = option((2_000_000, 2_000_001, 2_000_002), "episode seeds")
    against: tuple[str, ...] = option(("random", "shortest_queue", "lbgr"), "routers; the first is the baseline")
    workload: str | dict[str, Any] | None = option(None, "none: the environment's")


@dataclass(frozen=True)
class TrainConfig:
    """One training run."""

    name: str
    env: EnvConfig = EnvConfig()
    steps: int = option(1_000_000, "environment steps in all")
    seed: int = option(0, "of weights, actions and training episodes")
    envs: int = option(16, "environments")
    group: int = option(1, "environments that share episodes, as each other's baseline; 1: none")
    stagger: int = option(0, "requests by which the first episode of each group starts later than the one before")
    processes: bool = option(False, "one process per environment instead of none")
    work_rows: bool = option(False, "add the rows of controllers.learned.work_rows to the observation")
    hidden: int = option(64, "width of the network")
    residual_per_s: float = option(0.0, "start from so many times the blend rule (needs work_rows); 0: from scratch")
    ppo: PPOConfig = PPOConfig()
    validation: ValidationConfig = ValidationConfig()
    test: TestConfig = TestConfig()

    def __post_init__(self) -> None:
        if min(self.steps, self.envs, self.group, self.validation.every) < 1 or self.envs % self.group:
            raise ConfigError(
                "steps, envs, group and validation.every must be at least 1 and group must divide envs, "
                f"got {self.steps}, {self.envs}, {self.group} and {self.validation.every}"
            )
        if set(self.validation.seeds) & set(self.test.seeds) or not (self.validation.seeds and self.test.seeds):
            raise ConfigError("validation.seeds and test.seeds must be two sets without a common seed, neither empty")
        if self.residual_per_s and not self.work_rows:
            raise ConfigError("residual_per_s needs work_rows: true, which hold the blend rule's score")
        if self.hidden < 1 or self.stagger < 0:
            raise ConfigError(f"hidden must be at least 1 and stagger not negative, got {self.hidden}, {self.stagger}")
        if not self.test.against:
            raise ConfigError("test.against must name at least one router")

    def comparison(self, routing: Sequence[Any], part: ValidationConfig | TestConfig) -> dict[str, Any]:
        """Return the comparison (plain, see `CompareConfig`) of routers on the environment, the seeds of `part`."""
        env = dataclasses.replace(self.env, workload=part.workload or self.env.workload)
        return comparison(self.name, env, part.seeds, routing=list(routing), eviction=[self.env.eviction])


def load_training(data: Mapping[str, Any]) -> TrainConfig:
    """Return the checked training run for plain `data`.

    Raises:
        ConfigError: an unknown key or a wrong value at any depth.
        UnknownNameError: no such workload, fleet, router or eviction policy.
    """
    config = build(TrainConfig, data, "train")
    for part in (config.validation, config.test):
        make_plan(load_compare(config.comparison(config.test.against, part)))
    return config
