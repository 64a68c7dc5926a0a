"""Train an eviction policy with sb3-contrib's MaskablePPO: python scripts/train_eviction.py tiny --set ppo.gamma=0.98.

CONFIG is a name in configs/train_eviction or a YAML file. The output folder holds best.json, an eviction policy like
any other (`kvgym run --eviction FOLDER/best.json`; it runs compiled), TensorBoard events, and test/, the comparison
with other policies on seeds that neither training nor the choice of the policy has seen. With --json
stdout is one JSON object.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from rich.console import Console
from sb3_contrib import MaskablePPO
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.logger import configure
from stable_baselines3.common.vec_env import DummyVecEnv, VecMonitor, VecNormalize

from controllers.learned.candidate_policy import CandidatePolicy, write_scorer
from kvgym.config.options import to_plain
from kvgym.envs.choice import make_offer
from kvgym.envs.eviction import EvictionEnv
from kvgym.harness.compare.grid import load_compare
from kvgym.harness.compare.plan import make_plan
from kvgym.harness.compare.run import run
from kvgym.harness.measure.statistics import summarize
from kvgym.harness.report.console import print_table
from kvgym.harness.tools.comparison import compare
from kvgym.training.command import new_folder, run_command
from kvgym.training.eviction_training import EvictionTrainConfig, load_eviction_training


def make_model(config: EvictionTrainConfig, folder: Path) -> MaskablePPO:
    """Return a new model on its environments."""
    arguments = to_plain(config.env)
    vector = VecMonitor(DummyVecEnv([lambda: EvictionEnv(**arguments)] * config.envs))
    # Rewards are divided by the running deviation of their discounted sums; observations are bounded already.
    vector = VecNormalize(vector, norm_obs=False, gamma=config.ppo.gamma)
    kwargs = {"units": config.units}
    ppo = to_plain(config.ppo)
    model = MaskablePPO(CandidatePolicy, vector, seed=config.seed, device="cpu", policy_kwargs=kwargs, **ppo)
    model.set_logger(configure(str(folder), ["tensorboard"]))
    return model


class Best(BaseCallback):
    """Writes the policy now and then, plays it compiled on the validation seeds, and keeps the best."""

    def __init__(self, config: EvictionTrainConfig, folder: Path) -> None:
        super().__init__()
        self.config, self.folder = config, folder
        self.best, self.due = -1.0, config.every

    def _on_step(self) -> bool:
        return True

    def _on_rollout_start(self) -> None:
        if self.num_timesteps >= self.due:
            self.validate()

    def validate(self) -> None:
        """Write the policy as last.json, and as best.json if its hit rate is the highest so far."""
        last, env = self.folder / "last.json", self.config.env
        offer = make_offer(env.candidates, env.offered)
        write_scorer(self.model.policy, offer.recent, offer.random, env.tail_tokens or 0, last)
        hit_rate = float(np.mean([self._hit_rate(last, seed) for seed in self.config.validation_seeds]))
        text = f"{self.num_timesteps:>10,} steps   hit rate {hit_rate:.1%}"
        if hit_rate > self.best:
            self.best, text = hit_rate, text + "   best"
            (self.folder / "best.json").write_bytes(last.read_bytes())
        print(text, flush=True)
        self.logger.record("validation/hit_rate", hit_rate)
        self.due = self.num_timesteps + self.config.every

    def _hit_rate(self, path: Path, seed: int) -> float:
        (cell,) = make_plan(load_compare(self.config.comparison([str(path)], [seed]))).cells
        result = run(cell, seed)
        return summarize(result.records, result.totals)["hit_rate"] or 0.0


def train(config: EvictionTrainConfig, folder: Path) -> int:
    """Train to `config.steps` and return the steps made."""
    torch.set_num_threads(1)  # the networks are small: more threads wait for each other
    model = make_model(config, folder)
    best = Best(config, folder)
    try:
        model.learn(config.steps, best)
        best.validate()
        model.logger.dump(model.num_timesteps)
    finally:
        model.get_env().close()
    return model.num_timesteps


def show(console: Console, cells: list[dict[str, Any]]) -> None:
    """Print hit rate and mean latency of each policy."""
    names = [cell["eviction"] if not cell["eviction"].endswith(".json") else "learned" for cell in cells]
    rows = [
        [name, f"{cell['hit_rate']:.1%}", f"{cell['mean_latency_s']:.3f}"]
        for name, cell in zip(names, cells, strict=True)
    ]
    print_table(console, ["eviction", "hits", "mean s"], rows)


def train_and_compare(
    config: EvictionTrainConfig, folder: Path, _: bool
) -> tuple[Callable[[Console], None], dict[str, Any]]:
    """Train in a new folder, compare; return what prints the table, and the facts."""
    EvictionEnv(**to_plain(config.env)).reset(seed=config.seed)  # mistakes come before the folder
    new_folder(folder, config, "choose another folder with --out")
    steps = train(config, folder)
    best = folder / "best.json"
    done = compare(config.comparison([*config.against, str(best)], config.test_seeds), folder / "test", jobs=1)
    cells = [cell.brief for cell in done.summary.cells]
    return functools.partial(show, cells=cells), {"best": str(best), "steps": steps, "cells": cells}


if __name__ == "__main__":
    sys.exit(run_command(__doc__, "train_eviction", load_eviction_training, train_and_compare))
