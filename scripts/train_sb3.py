"""Train a router with stable-baselines3's PPO: python scripts/train_sb3.py tiny --set ppo.gamma=0.99.

CONFIG is a name in configs/train or a YAML file. The output folder holds best.zip, which plays as a router (`kvgym run
--routing FOLDER/best.zip`), last.zip with what `--resume` needs, TensorBoard events, and test-STEPS/, the comparison
with other routers on seeds that neither training nor the choice of the checkpoint has seen. With --json stdout is one
JSON object.
"""

from __future__ import annotations

import functools
import json
import math
import shutil
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import torch
from rich.console import Console
from stable_baselines3 import PPO
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.logger import configure
from stable_baselines3.common.vec_env import DummyVecEnv, SubprocVecEnv, VecEnv, VecMonitor, VecNormalize

from controllers.learned.group_buffer import GroupBuffer
from controllers.learned.set_policy import SetPolicy
from controllers.learned.work_observation import WorkObservation
from controllers.routing.blend import Blend
from kvgym.config.loader import load_yaml
from kvgym.config.options import to_plain
from kvgym.control import ControllerPolicy
from kvgym.errors import ResultsError
from kvgym.harness.compare.grid import load_compare
from kvgym.harness.compare.plan import make_plan
from kvgym.harness.compare.run import run
from kvgym.harness.compare.summary import Summary
from kvgym.harness.measure.statistics import paired_ratio, summarize
from kvgym.harness.report.console import print_table
from kvgym.harness.tools.comparison import compare
from kvgym.training.command import new_folder, run_command
from kvgym.training.grouped import TrainingEpisodes
from kvgym.training.router_training import TrainConfig, load_training


def make_env(config: TrainConfig, rank: int, done: int) -> gymnasium.Env:
    """Return training environment number `rank`; after `done` steps, so that a resumed run gets other episodes."""
    if config.processes:
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the parent, which saves
    env = gymnasium.make("kvgym/Routing-v0", disable_env_checker=True, **to_plain(config.env))
    if config.work_rows:
        env = WorkObservation(env)
    group = rank // config.group
    rule = functools.partial(ControllerPolicy, Blend())
    return TrainingEpisodes(env, [config.seed, group, done], config.stagger * group, rule)


def make_vector(config: TrainConfig, done: int) -> VecEnv:
    """Return all training environments as one."""
    makers = [functools.partial(make_env, config, rank, done) for rank in range(config.envs)]
    return VecMonitor(SubprocVecEnv(makers) if config.processes else DummyVecEnv(makers))


def make_model(config: TrainConfig, folder: Path, resume: bool) -> PPO:
    """Return a new model, or the last one of the folder."""
    done = json.loads((folder / "state.json").read_text(encoding="utf-8"))["steps"] if resume else 0
    vector, saved = make_vector(config, done), str(folder / "normalize.pkl")
    if resume:
        vector = VecNormalize.load(saved, vector)
        model = PPO.load(folder / "last.zip", vector, device="cpu")
    else:
        model = PPO(
            SetPolicy,
            # Rewards are divided by the running deviation of their discounted sums; observations are bounded already.
            VecNormalize(vector, norm_obs=False, gamma=config.ppo.gamma),
            seed=config.seed,
            device="cpu",
            rollout_buffer_class=GroupBuffer,
            rollout_buffer_kwargs={"group": config.group},
            policy_kwargs={"hidden": config.hidden, "residual_per_s": config.residual_per_s},
            **to_plain(config.ppo),
        )
    model.set_logger(configure(str(folder), ["tensorboard"]))
    return model


class Checkpoints(BaseCallback):
    """Logs finished episodes, validates the greedy policy now and then, keeps the best model and the last."""

    def __init__(self, config: TrainConfig, folder: Path, resume: bool) -> None:
        super().__init__()
        self.config, self.folder = config, folder
        self.best, self.due = math.inf, 0
        if resume:
            state = json.loads((folder / "state.json").read_text(encoding="utf-8"))
            self.best, self.due = state["best"], state["due"]

    def _on_step(self) -> bool:
        for info in self.locals["infos"]:
            for name, value in info.get("episode_stats", {}).items():
                self.logger.record_mean(name, value)
        return True

    def _on_rollout_start(self) -> None:
        if self.num_timesteps >= self.due:
            self.validate()

    def validate(self) -> None:
        """Save the model, play it on the validation seeds and keep it if it is the best so far."""
        self.save()
        mean_s, p95_s = self._play(self.folder / "last.zip")
        score = math.exp(float(np.mean(np.log(mean_s) + np.log(p95_s))) / 2)
        text = f"{self.num_timesteps:>10,} steps   mean {np.mean(mean_s):8.3f} s   P95 {np.mean(p95_s):8.3f} s"
        if score < self.best:
            self.best, text = score, text + "   best"
            shutil.copyfile(self.folder / "last.zip", self.folder / "best.zip")
        print(text, flush=True)
        for name, value in (("mean_latency_s", np.mean(mean_s)), ("p95_latency_s", np.mean(p95_s)), ("score", score)):
            self.logger.record(f"validation/{name}", float(value))
        self.due = self.num_timesteps + self.config.validation.every
        self.save()

    def save(self) -> None:
        """Write what a resumed run needs."""
        self.model.save(self.folder / "last.zip")
        self.model.get_vec_normalize_env().save(str(self.folder / "normalize.pkl"))
        state = {"steps": self.num_timesteps, "best": self.best, "due": self.due}
        (self.folder / "state.json").write_text(json.dumps(state), encoding="utf-8")

    def _play(self, path: Path) -> tuple[list[float], list[float]]:
        """Return mean latency and P95 (s) of each validation seed, infinite where nothing was served."""
        cells = make_plan(load_compare(self.config.comparison([learned(path)], self.config.validation))).cells
        results = [run(cells[0], seed) for seed in self.config.validation.seeds]
        metrics = [summarize(result.records, result.totals) for result in results]
        mean_s, p95_s = ([m[name] or math.inf for m in metrics] for name in ("mean_latency_s", "p95_latency_s"))
        return mean_s, p95_s


def learned(path: Path) -> dict[str, Any]:
    """Return the entry of a saved model in a comparison."""
    return {"use": "learned", "name": "learned", "options": {"path": str(path)}}


def train(config: TrainConfig, folder: Path, resume: bool) -> int:
    """Train to `config.steps` and return the steps made; after Ctrl-C the run is saved and the interrupt goes on."""
    torch.set_num_threads(1)  # the networks are small: more threads wait for each other, for long on a busy machine
    model = make_model(config, folder, resume)
    checkpoints = Checkpoints(config, folder, resume)
    try:
        left = config.steps - model.num_timesteps
        if left > 0:
            model.learn(left, checkpoints, reset_num_timesteps=not resume)
            checkpoints.validate()
            model.logger.dump(model.num_timesteps)
    except KeyboardInterrupt:
        checkpoints.save()
        raise
    finally:
        model.get_env().close()
    return model.num_timesteps


def show(console: Console, summary: Summary) -> None:
    """Print mean, P50, P95 and hit rate of each router, and the learned one's paired ratios to it."""
    own = summary.cells[-1]
    names = ("mean_latency_s", "p95_latency_s")
    rows = []
    for cell in summary.cells:
        mean, p50, p95, hit = (cell.mean(m) or math.nan for m in (names[0], "p50_latency_s", names[1], "hit_rate"))
        ratios = ["", ""]
        if cell is not own:
            pairs = ([[row[name] for row in each.per_seed] for each in (own, cell)] for name in names)
            found = ([value or math.nan for value in paired_ratio(*pair)] for pair in pairs)
            ratios = [f"{ratio:.3f} ({low:.3f}-{high:.3f})" for ratio, low, high in found]
        rows.append([cell.labels[2], f"{mean:.3f}", f"{p50:.3f}", f"{p95:.3f}", f"{hit:.1%}", *ratios])
    header = ["router", "mean s", "P50 s", "P95 s", "hits", "learned / router: mean (95 %)", "P95 (95 %)"]
    print_table(console, header, rows)


def prepare(config: TrainConfig, folder: Path, resume: bool) -> None:
    """Make the folder of a new run, or check that the folder holds this run.

    Raises:
        ResultsError: the folder holds another run, or there is nothing to resume, or it cannot be written.
    """
    file, plain = folder / "config.yaml", to_plain(config)
    if not resume:
        new_folder(folder, config, "continue its run with --resume, or choose another with --out")
        return
    if absent := [name for name in ("config.yaml", "state.json", "last.zip") if not (folder / name).is_file()]:
        raise ResultsError(f"nothing to resume in {folder}: no {absent[0]}")
    before = load_yaml(file)
    if changed := sorted(key for key in plain if key not in ("steps", "test") and plain[key] != before.get(key)):
        raise ResultsError(
            f"{folder} was begun with another {changed[0]!r}; only steps and test may change on resuming"
        )


def train_and_compare(
    config: TrainConfig, folder: Path, resume: bool
) -> tuple[Callable[[Console], None], dict[str, Any]]:
    """Train in a folder, compare; return what prints the table, and the facts."""
    prepare(config, folder, resume)
    steps = train(config, folder, resume)
    best = folder / "best.zip"
    data = config.comparison([*config.test.against, learned(best)], config.test)
    summary = compare(data, folder / f"test-{steps}", jobs=1).summary
    facts = {"best": str(best), "steps": steps, "cells": [cell.brief for cell in summary.cells]}
    return functools.partial(show, summary=summary), facts


if __name__ == "__main__":
    left = "interrupted: saved; the same command with --resume continues"
    sys.exit(run_command(__doc__, "train", load_training, train_and_compare, left, resumable=True))
