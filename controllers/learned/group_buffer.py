"""Advantages are taken relative to twins: environments that meet the same requests at the same times."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from stable_baselines3.common.buffers import DictRolloutBuffer

from kvgym.errors import ConfigError


class GroupBuffer(DictRolloutBuffer):
    """Subtracts from each advantage its mean over the group at the same step.

    Environments ``k * group`` to ``(k + 1) * group - 1`` must play the same episodes (`scripts/train_sb3.py` sees to
    it), on a fleet without a schedule. One step is then one arrival, so they stay aligned; what is left after the
    subtraction is what the choices did and not what the arrivals brought. The value targets stay as they are.

    Args:
        args: as of `DictRolloutBuffer`.
        group: environments per group; it must divide their number.
        kwargs: as of `DictRolloutBuffer`.

    Raises:
        ConfigError: `group` does not divide the number of environments.
    """

    def __init__(self, *args: Any, group: int = 1, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if group < 1 or self.n_envs % group:
            raise ConfigError(f"group must divide the number of environments ({self.n_envs}), got {group}")
        self.group = group

    def compute_returns_and_advantage(self, last_values: torch.Tensor, dones: np.ndarray) -> None:
        """Compute returns as usual, then make the advantages relative."""
        super().compute_returns_and_advantage(last_values, dones)
        if self.group > 1:
            grouped = self.advantages.reshape(self.buffer_size, -1, self.group)  # a view
            grouped -= grouped.mean(-1, keepdims=True)
