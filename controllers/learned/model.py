"""A trained model plays as a controller: SB3 and sb3-contrib files, recurrent and maskable ones included."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path
from typing import Any, Self

import numpy as np
from gymnasium import spaces

from controllers.learned.work_rows import WorkRows, work_space
from kvgym.control import ModelController
from kvgym.encoding.decisions import encode, observation_space
from kvgym.errors import ConfigError, MissingDependencyError
from kvgym.types import Decision, FleetSpec

_PARTS = ("policy_class", "observation_space", "action_space", "policy_kwargs")
"""What of a saved algorithm makes its policy."""


class Learned:
    """Routes with the policy in a file that stable-baselines3's ``model.save`` wrote, choosing greedily.

    The observation is `kvgym.encoding.decisions.encode`'s, with the ``work`` rows of `controllers.learned.work_rows` if
    the model was trained with them. A `SetPolicy` plays on any number of workers and never chooses a masked one; any
    other policy plays on as many workers as it was trained with, and a masked choice becomes the first allowed worker.

    torch runs on one thread: the networks are small, and a router has other things to do with its cores.

    Such files hold Python pickles: loading one runs code from it. Load only what you trust.

    Source: the file; in `configs/train` is what ours were trained with. No constants.

    Args:
        path: the file, .zip.

    Raises:
        ConfigError: there is no such file, it is no such model, or it was trained for other observations.
        MissingDependencyError: stable-baselines3, or the package of its policy, is not installed.
    """

    def __init__(self, path: str | Path) -> None:
        if not isinstance(path, str | Path):
            raise ConfigError(f"path must be that of a model file (.zip), got {path!r}")
        self._play(_load_policy(Path(path)), path)

    @classmethod
    def of(cls, model: Any) -> Self:
        """Return the controller of a model that is loaded already, such as ``PPO.load`` returns.

        Raises:
            ConfigError: it was trained for other observations.
        """
        self = cls.__new__(cls)
        model.policy.set_training_mode(False)
        self._play(model.policy, type(model).__name__)
        return self

    def _play(self, policy: Any, name: str | Path) -> None:
        """Route with `policy`, which messages call `name`."""
        self.name, self.policy = name, policy
        space = policy.observation_space
        self.trained_workers = _trained_workers(space, policy.action_space, name)
        self._with_rows = "work" in space.spaces
        self._any_fleet = hasattr(self.policy, "choose")
        self._player = ModelController(self.policy, encode=self._observe)

    def check_workers(self, workers: int) -> None:
        """Check that the model can play a fleet of so many workers.

        Raises:
            ConfigError: it was trained for another number and does not carry over.
        """
        if not self._any_fleet and workers != self.trained_workers:
            raise ConfigError(
                f"{self.name} was trained for {self.trained_workers} workers, this fleet has {workers}; "
                "train it anew, or train a set policy (scripts/train_sb3.py), which plays on any fleet"
            )

    def reset(self, spec: FleetSpec, seed: int) -> None:
        """Start an episode.

        Raises:
            ConfigError: the model cannot play this fleet.
        """
        import torch

        self.check_workers(spec.workers)
        torch.set_num_threads(1)
        self._rows = WorkRows(spec)
        self._player.reset(spec, seed)

    def act(self, decision: Decision) -> int:
        """Return the policy's greedy choice."""
        if self._any_fleet and decision.mask.any():
            worker = self.policy.choose(self._observe(decision), decision.mask)
        else:
            worker = self._player.act(decision)
        if self._with_rows:
            self._rows.send(decision, worker)
        return worker

    def observe(self, records: np.ndarray) -> None:
        """Take note of ended requests, for the ``work`` rows."""
        if self._with_rows:
            self._rows.observe(records)

    def _observe(self, decision: Decision) -> dict[str, np.ndarray]:
        observation = encode(decision)
        return {**observation, "work": self._rows.rows(decision)} if self._with_rows else observation


def _load_policy(path: Path) -> Any:
    try:
        from stable_baselines3.common.save_util import load_from_zip_file
    except ImportError as error:
        raise MissingDependencyError(
            f"a learned controller needs stable-baselines3: pip install 'kvgym[train]' ({error})"
        ) from error
    if not path.is_file():
        raise ConfigError(f"path: no model file {path}; give the .zip that model.save or scripts/train_sb3.py wrote")
    try:
        with zipfile.ZipFile(path) as archive:
            names = json.loads(archive.read("data"))
        others = {name: None for name in names if name not in _PARTS}  # not unpickled
        data, weights, _ = load_from_zip_file(path, device="cpu", custom_objects=others)
        policy_class, observations, actions, options = (data[name] for name in _PARTS)
        policy = policy_class(observations, actions, lambda _: 0.0, **options)
        policy.load_state_dict(weights["policy"])
    except ModuleNotFoundError as error:
        raise MissingDependencyError(f"{path} needs the package {error.name!r}: pip install it") from error
    except (KeyError, ValueError, TypeError, AttributeError, RuntimeError, zipfile.BadZipFile, OSError) as error:
        raise ConfigError(f"{path} is no model saved by stable-baselines3 ({type(error).__name__}: {error})") from error
    policy.set_training_mode(False)
    return policy


def _trained_workers(space: Any, actions: Any, path: str | Path) -> int:
    """Return the number of workers that the model was trained with, after checking that it understands ours."""
    if not isinstance(actions, spaces.Discrete):
        raise ConfigError(f"{path} chooses from {actions}; a router needs Discrete, one action per worker")
    workers = int(actions.n)
    known = {**observation_space(workers).spaces, "work": work_space(workers)}
    if not isinstance(space, spaces.Dict) or not {"request", "workers"} <= set(space.spaces):
        raise ConfigError(f"{path} was trained on observations {space}, not on those of kvgym/Routing-v0")
    for name, own in space.spaces.items():
        if name not in known or own.shape != known[name].shape:
            expected = f"they are {known[name].shape} here" if name in known else "there are none here"
            raise ConfigError(
                f"{path} was trained for {workers} workers with {name!r} of shape {own.shape}; {expected}, "
                "so this model belongs to another version or environment"
            )
    return workers
