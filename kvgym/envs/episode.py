"""All environments share the episode: one workload on one fleet, seeds, masks, records, pictures, copies."""

from __future__ import annotations

import copy
import operator
from collections.abc import Mapping
from typing import Any, ClassVar, Self

import gymnasium
import numpy as np
from gymnasium import spaces

from kvgym.backends.base import Progress
from kvgym.config.cluster import resolve_cluster
from kvgym.config.loader import resolve_workload
from kvgym.config.signals import resolve_signals
from kvgym.envs.rewards.base import Term
from kvgym.envs.rewards.weighted import WeightedReward
from kvgym.errors import ConfigError, SimulationError, did_you_mean
from kvgym.types import RECORD, Decision, FleetSpec

Observation = dict[str, Any]
"""Float32 arrays by name."""
MOST_SKIPPED = 100
"""So many episodes in a row may have nothing to decide before that is an error."""


class EpisodeEnv(gymnasium.Env[Observation, np.int64]):
    """An environment that plays episodes on a backend; subclasses say what is to be decided.

    Attributes:
        decision: what is to be decided; None before the first reset and after the last step.
        fleet: the fleet of this episode, a new object after each reset.
        episode_seed: seed of this episode.
        completed: RECORD rows that ended since the last decision, in order of completion.
    """

    metadata: dict[str, Any] = {"render_modes": ["ansi", "rgb_array"], "render_fps": 10}  # noqa: RUF012 - declared so by gymnasium.Env
    action_space: spaces.Discrete
    observation_space: spaces.Dict
    decision: Any
    fleet: FleetSpec
    episode_seed: int
    _progress: Progress
    _idle: ClassVar[str]
    """Why an episode has nothing to decide, and what to do about it."""

    def __init__(
        self,
        workload: str | Mapping[str, Any],
        cluster: str | Mapping[str, Any],
        reward: str | Mapping[str, Any] | Term,
        observability: str,
        signals: Mapping[str, Any] | None,
        render_mode: str | None,
    ) -> None:
        self.render_mode = _check_render_mode(render_mode, self.metadata["render_modes"])
        self._source = resolve_workload(workload)
        self._cluster = resolve_cluster(cluster)
        self._reward = WeightedReward(reward)
        self._signals = resolve_signals(signals, observability)
        self.decision = None
        self.completed = np.zeros(0, RECORD)
        self._backend: Any = None
        self._seeds, self._skipped = 2**31, 0
        self._forget()

    @property
    def backend(self) -> Any:
        """The backend of this episode.

        Raises:
            SimulationError: there is no episode yet.
        """
        if self._backend is None:
            raise SimulationError("there is no episode yet; call reset() first")
        return self._backend

    def action_masks(self) -> np.ndarray:
        """Return which actions are allowed, bool (actions,); all of them where nothing is to be decided."""
        mask = np.ones(self.action_space.n, bool)
        if self.decision is not None:
            mask[: len(self.decision.mask)] = self.decision.mask
            mask[len(self.decision.mask) :] = False
        return mask

    def records(self) -> np.ndarray:
        """Return the RECORD rows of all requests of this episode that have ended, in order of completion."""
        return self.backend.records()

    def render(self) -> Any:
        """Return the picture that `render_mode` asks for; None (and a warning) if that is None.

        Raises:
            SimulationError: there is no episode yet.
        """
        if self.render_mode is None:
            gymnasium.logger.warn("render() without a render_mode draws nothing; give one to gymnasium.make")
            return None
        from kvgym.envs.viewer.frame import make_frame
        from kvgym.envs.viewer.pixels import draw_pixels
        from kvgym.envs.viewer.text import draw_text

        waiting = self.decision if isinstance(self.decision, Decision) else None
        frame = make_frame(self.backend, waiting, *self._last)
        return draw_text(frame).plain if self.render_mode == "ansi" else draw_pixels(frame)

    def fork(self) -> Self:
        """Return an independent copy at the same decision: the same actions give it the same future.

        The copy has the same random state too, so it also draws the same later episodes.
        """
        twin = copy.copy(self)
        twin._backend = self.backend.fork()
        for name in ("_np_random", "action_space", "observation_space"):
            setattr(twin, name, copy.deepcopy(getattr(self, name)))
        return twin

    def _forget(self) -> None:
        """Forget what happened in the last episode."""
        self._invalid = 0
        self._last: tuple[Decision | None, int] = (None, -1)

    def _allowed(self, action: Any) -> int:
        """Return the action as an allowed index; one that is not allowed is counted, and the first that is taken."""
        index, mask = as_index(action), self.decision.mask
        if 0 <= index < len(mask) and mask[index]:
            return index
        self._invalid += 1
        return int(np.argmax(mask))

    def _nothing(self) -> Observation:
        """Return the observation where nothing is to be decided."""
        return {name: np.zeros(space.shape, np.float32) for name, space in self.observation_space.items()}

    def _info(self, dt_s: float) -> dict[str, Any]:
        return {
            "time_s": self._progress.time_s,
            "dt_s": dt_s,
            "completed": len(self.completed),
            "invalid_actions": self._invalid,
            "action_mask": self.action_masks().astype(np.int8),
            "episode_seed": self.episode_seed,
            "skipped_episodes": self._skipped,
        }

    def _first_info(self) -> dict[str, Any]:
        """Return the info of `reset`: the keys of every step's, so that recorders find the same ones everywhere."""
        return self._info(self._progress.time_s) | {"rewards": dict.fromkeys(self._reward.weights, 0.0)}

    def _open(self) -> Observation:
        """Start the episode with `episode_seed` and run to its first decision."""
        raise NotImplementedError(f"{type(self).__name__} must define _open()")

    def _draw_episode(self, options: Any) -> Observation:
        """Start the episode that `options` name, or one drawn; return the first observation.

        A drawn episode without a decision gives way to that with the next seed, and is counted.

        Raises:
            ConfigError: `options` are none of `reset`.
            SimulationError: the named episode has nothing to decide, or as many as `MOST_SKIPPED` in a row.
        """
        self.episode_seed, self._skipped = self._draw_seed(options), 0
        while True:
            observation = self._open()
            if self.decision is not None:
                return observation
            self._skipped += 1
            if "seed" in options:
                raise SimulationError(f"the episode with seed {self.episode_seed} {self._idle}")
            if self._skipped == MOST_SKIPPED:
                raise SimulationError(
                    f"each of the {MOST_SKIPPED} episodes up to seed {self.episode_seed} {self._idle}"
                )
            self.episode_seed = (self.episode_seed + 1) % self._seeds

    def _draw_seed(self, options: Any) -> int:
        """Return the episode seed that the options of `reset` give, or draw one.

        Raises:
            ConfigError: the options are no map, hold something else, or no whole number.
        """
        if not isinstance(options, Mapping):
            raise ConfigError(f"reset takes the options as a map, got {options!r}")
        if unknown := sorted(set(map(str, options)) - {"seed"}):
            raise ConfigError(f"reset takes the option 'seed', got {unknown}")
        if "seed" not in options:
            return int(self.np_random.integers(self._seeds))
        seed = options["seed"]
        if isinstance(seed, bool) or not isinstance(seed, int | np.integer) or seed < 0:
            raise ConfigError(f"the option 'seed' must be a whole number >= 0, got {seed!r}")
        return int(seed)


def as_index(action: Any) -> int:
    """Return an action as an integer; -1, which is no worker, for what is none (text, fractions, arrays of several)."""
    try:
        return operator.index(action.item() if isinstance(action, np.ndarray) and action.size == 1 else action)
    except TypeError:
        return -1


def _check_render_mode(mode: str | None, known: list[str]) -> str | None:
    """Return `mode` if it can be drawn here.

    Raises:
        ConfigError: it is neither None nor `known`.
        MissingDependencyError: images need pillow.
    """
    if mode is not None and mode not in known:
        hint = did_you_mean(mode, known)
        raise ConfigError(f"render_mode must be one of {', '.join(known)} or None, got {mode!r}{hint}")
    if mode == "rgb_array":
        from kvgym.envs.viewer.pixels import require_pillow

        require_pillow()
    return mode
