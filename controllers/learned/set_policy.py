"""A policy network sees the workers as a set: shared weights per row, pooled context, one logit per worker."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from gymnasium import spaces
from stable_baselines3.common.policies import ActorCriticPolicy
from stable_baselines3.common.torch_layers import BaseFeaturesExtractor
from torch import nn

from kvgym.errors import ConfigError


class _Rows(BaseFeaturesExtractor):
    """Observation -> one row per worker, (batch, workers, columns).

    A row holds the request's features, the worker's, each of these minus its minimum over the workers, and last, where
    the observation has ``work``, the blend score in plain seconds. ``work`` is in seconds up to thousands, so its
    logarithm is taken.
    """

    def __init__(self, observation_space: spaces.Dict) -> None:
        names = [name for name in ("workers", "work") if name in observation_space.spaces]
        widths = {name: space.shape[-1] for name, space in observation_space.spaces.items() if space.shape}
        columns = widths["request"] + 2 * sum(widths[name] for name in names) + ("work" in names)
        super().__init__(observation_space, columns)

    def forward(self, observations: dict[str, torch.Tensor]) -> torch.Tensor:
        """Return the rows of a batch of observations."""
        rows, last = observations["workers"], []
        if (work := observations.get("work")) is not None:
            rows, last = torch.cat((rows, torch.log1p(work)), -1), [work[..., -1:]]
        request = observations["request"].unsqueeze(1).expand(-1, rows.shape[1], -1)
        return torch.cat((request, rows, rows - rows.amin(1, keepdim=True), *last), -1)


class _SetNetwork(nn.Module):
    """Rows -> (one logit per worker, a latent vector for the value)."""

    def __init__(self, columns: int, hidden: int, residual_per_s: float) -> None:
        super().__init__()
        self.residual_per_s = residual_per_s
        self.encoder = nn.Sequential(nn.Linear(columns, hidden), nn.Tanh(), nn.Linear(hidden, hidden), nn.Tanh())
        self.actor = nn.Sequential(nn.Linear(3 * hidden, hidden), nn.Tanh(), nn.Linear(hidden, 1))
        self.critic = nn.Sequential(nn.Linear(2 * hidden, hidden), nn.Tanh())

    def forward(self, rows: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return logits (batch, workers) and the value's latent vector (batch, hidden)."""
        encoded, pooled = self._encode(rows)
        return self._logits(rows, encoded, pooled), self.critic(pooled)

    def forward_actor(self, rows: torch.Tensor) -> torch.Tensor:
        """Return logits (batch, workers)."""
        return self._logits(rows, *self._encode(rows))

    def forward_critic(self, rows: torch.Tensor) -> torch.Tensor:
        """Return the value's latent vector (batch, hidden)."""
        return self.critic(self._encode(rows)[1])

    def _encode(self, rows: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        encoded = self.encoder(self._bounded(rows))
        return encoded, torch.cat((encoded.mean(1), encoded.amax(1)), -1)

    def _bounded(self, rows: torch.Tensor) -> torch.Tensor:
        """Leave the plain seconds of the score out: its logarithm is among the other columns."""
        return rows[..., : self.encoder[0].in_features]

    def _logits(self, rows: torch.Tensor, encoded: torch.Tensor, pooled: torch.Tensor) -> torch.Tensor:
        context = pooled.unsqueeze(1).expand(-1, encoded.shape[1], -1)
        logits = self.actor(torch.cat((encoded, context), -1)).squeeze(-1)
        return logits - self.residual_per_s * rows[..., -1] if self.residual_per_s else logits


class SetPolicy(ActorCriticPolicy):
    """Actor and critic for stable-baselines3's PPO and A2C that do not depend on the number of workers.

    Every worker's row goes through the same two layers; mean and maximum over the workers are the context; row and
    context give one logit per worker, the context alone the value. So workers are interchangeable, and a policy trained
    on four of them plays on ten (`choose`).

    Args:
        observation_space: `kvgym/Routing-v0`'s, with or without the ``work`` rows of `WorkObservation`.
        action_space: one action per worker.
        lr_schedule: remaining progress (1 to 0) -> learning rate.
        hidden: width of all layers.
        residual_per_s: the logits start from minus so many times the blend score (s) of ``work``, i.e. the untrained
            policy is about the blend rule; 0: it starts about uniform.
        kwargs: as of `ActorCriticPolicy`.

    Raises:
        ConfigError: `residual_per_s` without ``work`` rows.
    """

    def __init__(
        self,
        observation_space: spaces.Dict,
        action_space: spaces.Discrete,
        lr_schedule: Callable[[float], float],
        hidden: int = 64,
        residual_per_s: float = 0.0,
        **kwargs: Any,
    ) -> None:
        self.hidden = hidden
        self.residual_per_s = residual_per_s
        if residual_per_s and "work" not in observation_space.spaces:
            raise ConfigError("residual_per_s needs the work rows in the observation (train with `work_rows: true`)")
        super().__init__(observation_space, action_space, lr_schedule, **{**kwargs, "features_extractor_class": _Rows})

    def choose(self, observation: dict[str, np.ndarray], mask: np.ndarray) -> int:
        """Return the allowed worker of largest logit for one observation with any number of workers."""
        with torch.inference_mode():
            batch = {name: torch.from_numpy(array).unsqueeze(0) for name, array in observation.items()}
            logits = self.mlp_extractor.forward_actor(self.features_extractor(batch))[0].numpy()
        return int(np.argmax(np.where(mask, logits, -np.inf)))

    def _build(self, lr_schedule: Callable[[float], float]) -> None:
        columns = self.features_dim - ("work" in self.observation_space.spaces)
        self.mlp_extractor = _SetNetwork(columns, self.hidden, self.residual_per_s)
        self.action_net = nn.Identity()
        self.value_net = nn.Linear(self.hidden, 1)
        for module, gain in (
            (self.mlp_extractor, np.sqrt(2)),
            (self.mlp_extractor.actor[-1], 0.01),
            (self.value_net, 1),
        ):
            module.apply(lambda layer, gain=gain: self.init_weights(layer, gain))
        self.optimizer = self.optimizer_class(self.parameters(), lr=lr_schedule(1), **self.optimizer_kwargs)

    def _get_constructor_parameters(self) -> dict[str, Any]:
        own = {"hidden": self.hidden, "residual_per_s": self.residual_per_s}
        return {**super()._get_constructor_parameters(), **own}
