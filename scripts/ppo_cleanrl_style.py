"""PPO in one file, to be read from top to bottom and changed: python scripts/ppo_cleanrl_style.py --steps 20000.

Trains on the environment of configs/train/tiny.yaml with torch alone: vector environment, set network, generalised
advantages, clipped updates. Writes TensorBoard events and the weights, then plays held-out episodes greedily and with
random choices. With --json stdout is one JSON object. For training in earnest use scripts/train_sb3.py.
"""

from __future__ import annotations

import argparse
import functools
import sys
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import torch
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from torch import nn
from torch.distributions import Categorical
from torch.utils.tensorboard import SummaryWriter

from controllers.learned.work_observation import WorkObservation
from kvgym.config.loader import load_config
from kvgym.errors import KVGymError
from kvgym.harness.report.console import answer, say

HELD_OUT = range(2000, 2006)
"""Episode seeds of the test; training draws its own."""


def arguments() -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--config", default="tiny", help="name in configs/train or YAML file; only `env` is read")
    parser.add_argument("--out", type=Path, default=Path("results/train/cleanrl_style"))
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--steps", type=int, default=30_000, help="environment steps in all")
    parser.add_argument("--envs", type=int, default=8)
    parser.add_argument("--rollout", type=int, default=128, help="steps per environment and update")
    parser.add_argument("--epochs", type=int, default=8)
    parser.add_argument("--minibatch", type=int, default=256)
    parser.add_argument("--lr", type=float, default=1e-3)
    parser.add_argument("--gamma", type=float, default=0.999, help="per arrival; a short horizon gives up workers")
    parser.add_argument("--lam", type=float, default=0.98)
    parser.add_argument("--clip", type=float, default=0.2)
    parser.add_argument("--entropy", type=float, default=0.003)
    parser.add_argument("--json", action="store_true", help="print exactly one JSON object, for programs")
    args = parser.parse_args()
    if min(args.steps, args.envs, args.rollout, args.epochs, args.minibatch) < 1:
        parser.error("steps, envs, rollout, epochs and minibatch must be at least 1")
    return args


def make_env(options: dict[str, Any]) -> gymnasium.Env:
    """Return an environment that also counts its episodes' returns."""
    env = gymnasium.make("kvgym/Routing-v0", disable_env_checker=True, **options)
    return gymnasium.wrappers.RecordEpisodeStatistics(WorkObservation(env))


class Agent(nn.Module):
    """One logit per worker from shared weights, and a value from the pooled rows."""

    def __init__(self, request: int, columns: int, hidden: int = 64) -> None:
        super().__init__()
        self.rows = nn.Sequential(
            nn.Linear(request + 2 * columns, hidden), nn.Tanh(), nn.Linear(hidden, hidden), nn.Tanh()
        )
        self.actor = nn.Sequential(nn.Linear(3 * hidden, hidden), nn.Tanh(), nn.Linear(hidden, 1))
        self.critic = nn.Sequential(nn.Linear(2 * hidden, hidden), nn.Tanh(), nn.Linear(hidden, 1))
        nn.init.zeros_(self.actor[-1].weight)  # all workers are equal in the beginning

    def forward(self, request: torch.Tensor, workers: torch.Tensor) -> tuple[Categorical, torch.Tensor]:
        """Return the choice's distribution over the workers and the value, for a batch."""
        request = request.unsqueeze(1).expand(-1, workers.shape[1], -1)
        rows = self.rows(torch.cat((request, workers, workers - workers.amin(1, keepdim=True)), -1))
        pooled = torch.cat((rows.mean(1), rows.amax(1)), -1)
        context = pooled.unsqueeze(1).expand(-1, rows.shape[1], -1)
        logits = self.actor(torch.cat((rows, context), -1)).squeeze(-1)
        return Categorical(logits=logits), self.critic(pooled).squeeze(-1)


def tensors(observation: dict[str, np.ndarray]) -> tuple[torch.Tensor, torch.Tensor]:
    """Return (request, workers) of a batch of observations; seconds of ``work`` enter by their logarithm."""
    rows = np.concatenate((observation["workers"], np.log1p(observation["work"])), -1)
    return torch.as_tensor(observation["request"]), torch.as_tensor(rows)


def advantages(
    rewards: torch.Tensor, values: torch.Tensor, ends: torch.Tensor, gamma: float, lam: float
) -> torch.Tensor:
    """Return generalised advantages (steps, envs); `values` has one more row, `ends` is 1 where an episode ended."""
    out, running = torch.zeros_like(rewards), torch.zeros(rewards.shape[1])
    for t in reversed(range(len(rewards))):
        alive = 1.0 - ends[t]
        delta = rewards[t] + gamma * values[t + 1] * alive - values[t]
        running = delta + gamma * lam * alive * running
        out[t] = running
    return out


def update(
    agent: Agent, optimizer: torch.optim.Optimizer, batch: dict[str, torch.Tensor], args: argparse.Namespace
) -> dict[str, float]:
    """Run the epochs of clipped updates over a flat batch; return the last minibatch's losses."""
    size, losses = len(batch["action"]), {}
    for _ in range(args.epochs):
        for rows in torch.randperm(size).split(args.minibatch):
            part = {name: tensor[rows] for name, tensor in batch.items()}
            choice, value = agent(part["request"], part["workers"])
            ratio = (choice.log_prob(part["action"]) - part["log_prob"]).exp()
            gain = part["advantage"]
            gain = (gain - gain.mean()) / (gain.std(unbiased=False) + 1e-8)
            policy_loss = -torch.min(ratio * gain, ratio.clamp(1 - args.clip, 1 + args.clip) * gain).mean()
            value_loss = 0.5 * (value - part["target"]).square().mean()
            entropy = choice.entropy().mean()
            optimizer.zero_grad()
            (policy_loss + value_loss - args.entropy * entropy).backward()
            nn.utils.clip_grad_norm_(agent.parameters(), 0.5)
            optimizer.step()
            losses = {"policy": policy_loss.item(), "value": value_loss.item(), "entropy": entropy.item()}
    return losses


def train(agent: Agent, envs: SyncVectorEnv, writer: SummaryWriter, args: argparse.Namespace) -> None:
    """Collect rollouts and update until `args.steps` environment steps are made."""
    optimizer = torch.optim.Adam(agent.parameters(), lr=args.lr, eps=1e-5)
    observation = tensors(envs.reset(seed=args.seed)[0])
    returns, scale = np.zeros(args.envs), RunningDeviation()
    for update_no in range(1, -(-args.steps // (args.envs * args.rollout)) + 1):
        keep: dict[str, list[torch.Tensor]] = {name: [] for name in ("request", "workers", "action", "log_prob")}
        rewards, values, ends = [], [], []
        for _ in range(args.rollout):
            with torch.no_grad():
                choice, value = agent(*observation)
                action = choice.sample()
            for name, tensor in zip(keep, (*observation, action, choice.log_prob(action)), strict=True):
                keep[name].append(tensor)
            arrays, reward, terminated, _, infos = envs.step(action.numpy())
            returns = returns * args.gamma + reward
            scale.add(returns)
            returns[terminated] = 0.0
            rewards.append(torch.as_tensor(reward / scale.value, dtype=torch.float32))
            values.append(value)
            ends.append(torch.as_tensor(terminated, dtype=torch.float32))
            observation = tensors(arrays)
            log_episodes(writer, infos, terminated, update_no * args.envs * args.rollout)
        with torch.no_grad():
            values.append(agent(*observation)[1])
        advantage = advantages(torch.stack(rewards), torch.stack(values), torch.stack(ends), args.gamma, args.lam)
        batch = {name: torch.cat(parts) for name, parts in keep.items()}
        batch |= {"advantage": advantage.flatten(), "target": (advantage + torch.stack(values)[:-1]).flatten()}
        for name, loss in update(agent, optimizer, batch, args).items():
            writer.add_scalar(f"loss/{name}", loss, update_no * args.envs * args.rollout)


class RunningDeviation:
    """Standard deviation of everything added so far; rewards are divided by it."""

    def __init__(self) -> None:
        self._n, self._sum, self._squares = 0, 0.0, 0.0

    def add(self, values: np.ndarray) -> None:
        """Take in `values`."""
        self._n, self._sum = self._n + len(values), self._sum + values.sum()
        self._squares += np.square(values).sum()

    @property
    def value(self) -> float:
        """The deviation, never 0."""
        return float(np.sqrt(max(self._squares / self._n - (self._sum / self._n) ** 2, 1e-8)))


def log_episodes(writer: SummaryWriter, infos: dict[str, Any], ended: np.ndarray, step: int) -> None:
    """Write return and invalid actions of the episodes that have ended in this step."""
    for i in np.flatnonzero(ended):
        writer.add_scalar("episode/return", infos["final_info"]["episode"]["r"][i], step)
        writer.add_scalar("episode/invalid_actions", infos["final_info"]["invalid_actions"][i], step)


def mean_latency_s(env: gymnasium.Env, agent: Agent | None) -> list[float]:
    """Return the mean latency of each held-out episode; without an agent choices are random."""
    means = []
    for seed in HELD_OUT:
        observation, _ = env.reset(options={"seed": seed})
        rng, over = np.random.default_rng(seed), False
        while not over:
            action = int(rng.integers(env.action_space.n))
            if agent is not None:
                with torch.no_grad():
                    request, rows = tensors({name: array[None] for name, array in observation.items()})
                    action = int(agent(request, rows)[0].logits.argmax())
            observation, _, over, _, _ = env.step(action)
        records = env.unwrapped.records()
        means.append(float((records["finish_s"] - records["arrival_s"]).mean()))
    return means


def main() -> int:
    """Train, save, test."""
    args = arguments()
    torch.set_num_threads(1)
    torch.manual_seed(args.seed)
    try:
        make = functools.partial(make_env, load_config("train", args.config).get("env", {}))
        test_env = make()
        args.out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        print(f"error: cannot write {args.out}: {error.strerror}", file=sys.stderr)
        return 2
    except KVGymError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    envs = SyncVectorEnv([make] * args.envs, autoreset_mode=AutoresetMode.SAME_STEP)
    space = test_env.observation_space
    agent = Agent(space["request"].shape[0], space["workers"].shape[1] + space["work"].shape[1])
    with SummaryWriter(str(args.out)) as writer:
        train(agent, envs, writer, args)
    weights = args.out / "weights.pt"
    torch.save(agent.state_dict(), weights)
    trained, random = (float(np.mean(mean_latency_s(test_env, player))) for player in (agent, None))
    text = (
        f"mean latency on {len(HELD_OUT)} held-out episodes: trained {trained:.3f} s, random {random:.3f} s; {weights}"
    )
    facts = {"weights": str(weights), "steps": args.steps, "trained_s": trained, "random_s": random}
    answer(args.json, facts, lambda console: say(console, text))
    return 0


if __name__ == "__main__":
    sys.exit(main())
