"""Environments with choices of victims share offers, the first decision's reward and whatever comes next."""

from __future__ import annotations

from typing import Any

import numpy as np

from kvgym.backends.base import Progress
from kvgym.backends.evicting import EvictingBackend, Offer
from kvgym.envs.episode import EpisodeEnv, Observation
from kvgym.errors import ConfigError, SimulationError
from kvgym.types import Decision, EvictionDecision

MOST_CANDIDATES = 4096
"""Most places for candidates; who wants all leaves of a large cache wants a compiled policy."""
_START = Progress(0.0, 0.0, 0.0, 0.0, 0.0)


class ChoiceEnv(EpisodeEnv):
    """An environment whose steps are choices of victims, alone or among others; see `EvictionEnv` and `JointEnv`.

    Subclasses set the spaces and define `_next` (run to the next decision) and `_encode`.

    Attributes (besides those of `EpisodeEnv`):
        fleet_workers: number of workers.
        places: most leaves on offer.
    """

    _idle = "ends without a decision: no cache gets full; lower capacity_tokens or send more requests"
    _accounted: Progress
    """Up to where rewards were given; the first step's reward covers what came before it too."""
    _owed: np.ndarray
    """RECORD rows that ended before the first decision."""

    def __init__(self, episode: tuple[Any, ...], candidates: int, offered: str, tail_tokens: int | None) -> None:
        """Make the environment; `episode` are the arguments of `EpisodeEnv`."""
        super().__init__(*episode)
        if all(rules.blocked for rules in self._cluster.engines):
            raise ConfigError("there is nothing to evict on vLLM workers, whose free list decides; use SGLang engines")
        self._offer = make_offer(candidates, offered)
        self.fleet_workers, self.places = self._cluster.workers, self._offer.places
        self._tail_tokens = 0 if tail_tokens is None else _whole("tail_tokens", tail_tokens, 2**31 - 1)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Observation, dict[str, Any]]:
        """Start an episode; ``options={"seed": n}`` fixes the episode seed instead of drawing it.

        Raises:
            ConfigError: `options` holds something else.
            SimulationError: there is nothing to decide in the episode of that seed, or in a hundred drawn ones.
        """
        super().reset(seed=seed)
        return self._draw_episode(options or {}), self._first_info()

    def _open(self) -> Observation:
        """Start the episode with `episode_seed` and run to its first decision."""
        workload = self._source.generate(self.episode_seed, self._cluster.page_size)
        self._backend = EvictingBackend(
            workload, self._cluster, self._offer, self._tail_tokens, self.episode_seed, self._signals
        )
        self.fleet = self.backend.spec
        self._forget()
        self._begin()
        observation = self._advance()
        self._accounted, self._owed = _START, self.completed
        return observation

    def step(self, action: Any) -> tuple[Observation, float, bool, bool, dict[str, Any]]:
        """Carry out the decision and run to the next one.

        Raises:
            SimulationError: nothing is to be decided, because the episode has ended or not begun.
        """
        if self.decision is None:
            raise SimulationError("there is nothing to decide; call reset() first")
        before_s, choice = self._progress.time_s, self._allowed(action)
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
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or not 1 <= value <= most:
        raise ConfigError(f"{name} must be a whole number from 1 to {most}, got {value!r}")
    return int(value)
