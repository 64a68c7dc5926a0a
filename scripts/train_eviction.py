"""Train an eviction policy with sb3-contrib's MaskablePPO: python scripts/train_eviction.py tiny --set ppo.gamma=0.98.

CONFIG is a name in configs/train_eviction or a YAML file. The output folder holds best.json, an eviction policy like
any other (`kvgym run --eviction FOLDER/best.json`; it runs compiled), TensorBoard events, and test/, the comparison
with other policies on seeds that neither training nor the choice of the policy has seen. The last line is JSON.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import torch
import yaml
from sb3_contrib import MaskablePPO
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.logger import configure
from stable_baselines3.common.vec_env import DummyVecEnv, VecMonitor, VecNormalize

from controllers.learned.candidate_policy import CandidatePolicy, write_scorer
from kvgym.config.loader import apply_overrides, load_config, mistakes_in, to_plain
from kvgym.envs.choice import make_offer
from kvgym.envs.eviction import EvictionEnv
from kvgym.errors import KVGymError, ResultsError
from kvgym.harness.compare.grid import expand, load_compare
from kvgym.harness.compare.run import run
from kvgym.harness.measure.statistics import summarize
from kvgym.harness.tools.comparison import compare
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
        (cell,), _ = expand(load_compare(self.config.comparison([str(path)], [seed])))
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


def prepare(config: EvictionTrainConfig, folder: Path) -> None:
    """Make the folder of a new run.

    Raises:
        ResultsError: it holds something, or cannot be written.
    """
    if folder.exists() and any(folder.iterdir()):
        raise ResultsError(f"{folder} is not empty; choose another folder with --out")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "config.yaml").write_text(yaml.safe_dump(to_plain(config), sort_keys=False), encoding="utf-8")
    except OSError as error:
        raise ResultsError(f"cannot write {folder}: {error.strerror}") from error


def table(cells: list[dict[str, Any]]) -> str:
    """Return hit rate and mean latency of each policy."""
    lines = ["eviction                       hits    mean s"]
    for cell in cells:
        name = cell["eviction"] if not cell["eviction"].endswith(".json") else "learned"
        lines.append(f"{name:<28} {cell['hit_rate']:>6.1%} {cell['mean_latency_s']:>9.3f}")
    return "\n".join(lines)


def main() -> int:
    """Parse the command line, train, compare; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("config", help="name in configs/train_eviction, or YAML file")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="as in ppo.gamma=0.98")
    parser.add_argument("--seed", type=int, help="seed of the run (the same as --set seed=N)")
    parser.add_argument("--steps", type=int, help="environment steps in all (the same as --set steps=N)")
    parser.add_argument("--out", type=Path, help="output folder; default: results/train_eviction/NAME-sSEED")
    args = parser.parse_args()
    short = [f"{name}={value}" for name in ("seed", "steps") if (value := getattr(args, name)) is not None]
    changes = args.set + short
    try:
        data = apply_overrides(load_config("train_eviction", args.config), changes)
        with mistakes_in(args.config, changes):
            config = load_eviction_training(data)
        folder = args.out or Path("results") / "train_eviction" / f"{config.name}-s{config.seed}"
        EvictionEnv(**to_plain(config.env)).reset(seed=config.seed)  # mistakes come before the folder
        prepare(config, folder)
        steps = train(config, folder)
        best = folder / "best.json"
        done = compare(config.comparison([*config.against, str(best)], config.test_seeds), folder / "test", jobs=1)
    except KVGymError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 130
    cells = [cell.brief for cell in done.summary.cells]
    print(table(cells))
    print(json.dumps({"best": str(best), "steps": steps, "cells": cells}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
