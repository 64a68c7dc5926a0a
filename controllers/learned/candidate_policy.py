"""A policy network for Eviction-v0 scores each leaf by itself, small enough to become a compiled policy."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from gymnasium import spaces
from sb3_contrib.common.maskable.policies import MaskableActorCriticPolicy
from stable_baselines3.common.torch_layers import BaseFeaturesExtractor
from torch import nn

from controllers.eviction.learned import COLUMNS, FEATURES, FORMAT


class _Flat(BaseFeaturesExtractor):
    """Observation -> cache features, then the rows of all places, (batch, columns)."""

    def __init__(self, observation_space: spaces.Dict) -> None:
        super().__init__(observation_space, spaces.flatdim(observation_space))

    def forward(self, observations: dict[str, torch.Tensor]) -> torch.Tensor:
        """Return one row per observation."""
        return torch.cat((observations["cache"], observations["candidates"].flatten(1)), -1)


class _Network(nn.Module):
    """Flat observation -> (a score per place, a latent vector for the value)."""

    def __init__(self, cache: int, shape: tuple[int, int], units: int, critic: int) -> None:
        super().__init__()
        self.cache, self.shape = cache, shape
        self.linear = nn.Linear(FEATURES, 1, bias=False)
        self.hidden = nn.Linear(FEATURES, units)
        self.out = nn.Linear(units, 1, bias=False)
        self.critic = nn.Sequential(
            nn.Linear(cache + 2 * shape[1], critic), nn.Tanh(), nn.Linear(critic, critic), nn.Tanh()
        )

    def forward(self, flat: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return scores (batch, places) and the value's latent vector (batch, critic)."""
        return self.forward_actor(flat), self.forward_critic(flat)

    def forward_actor(self, flat: torch.Tensor) -> torch.Tensor:
        """Return scores (batch, places)."""
        rows = self._rows(flat)[..., :FEATURES]
        return (self.linear(rows) + self.out(torch.relu(self.hidden(rows)))).squeeze(-1)

    def forward_critic(self, flat: torch.Tensor) -> torch.Tensor:
        """Return the value's latent vector (batch, critic)."""
        rows = self._rows(flat)
        return self.critic(torch.cat((flat[:, : self.cache], rows.mean(1), rows.amax(1)), -1))

    def _rows(self, flat: torch.Tensor) -> torch.Tensor:
        return flat[:, self.cache :].unflatten(-1, self.shape)


class CandidatePolicy(MaskableActorCriticPolicy):
    """Actor and critic for sb3-contrib's MaskablePPO on `kvgym/Eviction-v0`.

    The actor is what `controllers.eviction.learned` computes: the same linear score plus one layer of ReLU units for
    every leaf, without context, so that it can be written to a file (`write_scorer`) and evict at the engine's speed,
    in the simulator or in a server. The critic, which is only needed for training, sees the whole observation.

    Args:
        observation_space: Eviction-v0's.
        action_space: one action per place.
        lr_schedule: remaining progress (1 to 0) -> learning rate.
        units: hidden units of the actor.
        critic: width of the critic.
        kwargs: as of `MaskableActorCriticPolicy`.
    """

    def __init__(
        self,
        observation_space: spaces.Dict,
        action_space: spaces.Discrete,
        lr_schedule: Callable[[float], float],
        units: int = 8,
        critic: int = 64,
        **kwargs: Any,
    ) -> None:
        self.units = units
        self.critic = critic
        super().__init__(observation_space, action_space, lr_schedule, **{**kwargs, "features_extractor_class": _Flat})

    def _build(self, lr_schedule: Callable[[float], float]) -> None:
        cache, rows = (self.observation_space[name].shape for name in ("cache", "candidates"))
        self.mlp_extractor = _Network(cache[0], rows, self.units, self.critic)
        self.action_net = nn.Identity()
        self.value_net = nn.Linear(self.critic, 1)
        network = self.mlp_extractor
        gains = ((network, np.sqrt(2)), (network.linear, 0.01), (network.out, 0.01), (self.value_net, 1))
        for module, gain in gains:
            module.apply(lambda layer, gain=gain: self.init_weights(layer, gain))
        self.optimizer = self.optimizer_class(self.parameters(), lr=lr_schedule(1), **self.optimizer_kwargs)

    def _get_constructor_parameters(self) -> dict[str, Any]:
        return {**super()._get_constructor_parameters(), "units": self.units, "critic": self.critic}


def write_scorer(policy: CandidatePolicy, recent: int, random: int, tail_tokens: int, path: Path) -> None:
    """Write the actor of `policy` as a file that names an eviction policy (`controllers.eviction.learned`).

    Args:
        policy: what was trained.
        recent: least recently accessed leaves on offer, as in training.
        random: random ones, as in training.
        tail_tokens: what a choice evicts; 0: the whole leaf.
        path: the file, .json.
    """
    network = policy.mlp_extractor
    bias, weights, out = (
        part.detach().double() for part in (network.hidden.bias, network.hidden.weight, network.out.weight)
    )
    data = {
        "format": FORMAT,
        "columns": list(COLUMNS),
        "recent": recent,
        "random": random,
        "tail_tokens": tail_tokens,
        "linear": network.linear.weight.detach().double()[0].tolist(),
        "units": torch.cat((bias[:, None], weights, out.T), 1).tolist(),
    }
    path.write_text(json.dumps(data, indent=1), encoding="utf-8")
