"""What environments with choices of victims share: episodes, seeds, rewards, pictures, copies."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from kvgym.backends.base import Progress
from kvgym.backends.evicting import EvictingBackend, Offer
from kvgym.cluster import resolve_cluster
from kvgym.config import resolve_workload
from kvgym.envs.rewards.weighted import Term, WeightedReward
from kvgym.envs.routing import Observation, as_index, check_render_mode, draw_seed
from kvgym.errors import ConfigError, SimulationError
from kvgym.signals import resolve_signals
from kvgym.types import RECORD, Decision, EvictionDecision, FleetSpec

MOST_CANDIDATES = 4096
"""Most places for candidates; who wants all leaves of a large cache wants a compiled policy."""
_START = Progress(0.0, 0.0, 0.0, 0.0)


class ChoiceEnv(gymnasium.Env[Observation, np.int64]):
    """An environment whose steps are choices of victims, alone or among others; see `EvictionEnv` and `JointEnv`.

    Subclasses set the spaces and define `_next` (run to the next decision) and `_encode`.

    Attributes:
        decision: what is to be decided; None before the first reset and after the last step.
        fleet: the fleet of this episode, a new object after each reset.
        episode_seed: seed of this episode.
        completed: RECORD rows that ended since the last decision, in order of completion.
        fleet_workers: number of workers.
        places: most leaves on offer.
    """

    metadata: dict[str, Any] = {"render_modes": ["ansi", "rgb_array"], "render_fps": 10}  # noqa: RUF012 - declared so by gymnasium.Env
    action_space: spaces.Discrete
    observation_space: spaces.Dict
    fleet: FleetSpec
    episode_seed: int
    _progress: Progress
    _accounted: Progress
    """Up to where rewards were given; the first step's reward covers what came before it too."""
    _owed: np.ndarray
    """RECORD rows that ended before the first decision."""

    def __init__(
        self,
        workload: str | Mapping[str, Any],
        cluster: str | Mapping[str, Any],
        reward: str | Mapping[str, Any] | Term,
        observability: str,
        signals: Mapping[str, Any] | None,
        candidates: int,
        offered: str,
        tail_tokens: int | None,
        render_mode: str | None,
    ) -> None:
        self.render_mode = check_render_mode(render_mode, self.metadata["render_modes"])
        self._source = resolve_workload(workload)
        self._cluster = resolve_cluster(cluster)
        self._reward = WeightedReward(reward)
        self._signals = resolve_signals(signals, observability)
        self._offer = make_offer(candidates, offered)
        self.fleet_workers, self.places = self._cluster.workers, self._offer.places
        self._tail_tokens = 0 if tail_tokens is None else _whole("tail_tokens", tail_tokens, 2**31 - 1)
        self.decision: Decision | EvictionDecision | None = None
        self.completed = np.zeros(0, RECORD)
        self._invalid = 0
        self._last: tuple[Decision | None, int] = (None, -1)
        self._running: EvictingBackend | None = None

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Observation, dict[str, Any]]:
        """Start an episode; ``options={"seed": n}`` fixes the episode seed instead of drawing it.

        Raises:
            ConfigError: `options` holds something else.
            SimulationError: there is nothing to decide in this episode.
        """
        super().reset(seed=seed)
        self.episode_seed = draw_seed(options or {}, self.np_random)
        workload = self._source.generate(self.episode_seed, self._cluster.page_size)
        self._running = EvictingBackend(
            workload, self._cluster, self._offer, self._tail_tokens, self.episode_seed, self._signals
        )
        self.fleet = self._running.spec
        self._invalid = 0
        self._last = (None, -1)
        self._begin()
        observation = self._advance()
        self._accounted, self._owed = _START, self.completed
        if self.decision is None:
            raise SimulationError(
                f"the episode with seed {self.episode_seed} ends without a decision: no cache gets full; give the "
                "cluster less capacity_tokens or the workload more requests"
            )
        return observation, self._info(self._progress.time_s) | {"episode_seed": self.episode_seed}

    def step(self, action: Any) -> tuple[Observation, float, bool, bool, dict[str, Any]]:
        """Carry out the decision and run to the next one.

        Raises:
            SimulationError: nothing is to be decided, because the episode has ended or not begun.
        """
        if self.decision is None:
            raise SimulationError("there is nothing to decide; call reset() first")
        before_s, choice, mask = self._progress.time_s, as_index(action), self.decision.mask
        if not (0 <= choice < len(mask) and mask[choice]):
            choice = int(np.argmax(mask))
            self._invalid += 1
        if isinstance(self.decision, Decision):
            self._route(self.decision, choice)
        else:
            self.backend.evict(choice)
        observation = self._advance()
        ended = np.concatenate((self._owed, self.completed)) if len(self._owed) else self.completed
        reward, terms = self._reward(self._accounted, self._progress, ended)
        self._accounted, self._owed = self._progress, ended[:0]
        info = self._info(self._progress.time_s - before_s)
        info["rewards"] = terms
        return observation, reward, self.decision is None, False, info

    def action_masks(self) -> np.ndarray:
        """Return which actions are allowed, bool (actions,); all of them where nothing is to be decided."""
        mask = np.ones(self.action_space.n, bool)
        if self.decision is not None:
            mask[:] = False
            mask[: len(self.decision.mask)] = self.decision.mask
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

    def fork(self) -> ChoiceEnv:
        """Return an independent copy at the same decision: the same actions give it the same future.

        The copy has the same random state too, so it also draws the same later episodes.
        """
        twin = copy.copy(self)
        twin._running = self.backend.fork()
        for name in ("_np_random", "action_space", "observation_space"):
            setattr(twin, name, copy.deepcopy(getattr(self, name)))
        return twin

    @property
    def backend(self) -> EvictingBackend:
        """The backend of this episode.

        Raises:
            SimulationError: there is no episode yet.
        """
        if self._running is None:
            raise SimulationError("there is no episode yet; call reset() first")
        return self._running

    def _begin(self) -> None:
        """Prepare what a subclass keeps for an episode."""

    def _next(self) -> Decision | EvictionDecision | None:
        """Run to the next decision of the agent."""
        raise NotImplementedError(f"{type(self).__name__} must define _next()")

    def _encode(self, decision: Any) -> Observation:
        """Return the observation of a decision."""
        raise NotImplementedError(f"{type(self).__name__} must define _encode(decision)")

    def _route(self, decision: Decision, worker: int) -> None:
        self.backend.apply(worker)
        self._last = (decision, worker)

    def _advance(self) -> Observation:
        """Run to the next decision and take note of where the episode stands; return the observation."""
        self.decision = self._next()
        self._progress = self.backend.progress()
        return self._nothing() if self.decision is None else self._encode(self.decision)

    def _nothing(self) -> Observation:
        return {name: np.zeros(space.shape, np.float32) for name, space in self.observation_space.items()}

    def _info(self, dt_s: float) -> dict[str, Any]:
        return {
            "time_s": self._progress.time_s,
            "dt_s": dt_s,
            "completed": len(self.completed),
            "invalid_actions": self._invalid,
        }


def make_offer(candidates: int, offered: str) -> Offer:
    """Return which leaves a decision offers.

    Raises:
        ConfigError: there is no such rule, or not so many places.
    """
    k = _whole("candidates", candidates, MOST_CANDIDATES)
    offers = {"recent": Offer(k, 0), "random": Offer(0, k), "both": Offer(-(-k // 2), k // 2)}
    if not isinstance(offered, str) or offered not in offers:
        raise ConfigError(f"offered must be one of {', '.join(offers)}, got {offered!r}")
    return offers[offered]


def _whole(name: str, value: Any, most: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= most:
        raise ConfigError(f"{name} must be a whole number from 1 to {most}, got {value!r}")
    return value
