"""Routing-v0 as a vector environment steps many episodes by one compiled call per thread."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Mapping, Sequence
from typing import Any, cast

import numpy as np
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space

from kvgym.backends.batch import SimulatedBatch, cpus
from kvgym.backends.simulated import SimulatedBackend
from kvgym.engine.state import FINISHED
from kvgym.envs.episode import Observation, as_index
from kvgym.envs.routing import RoutingEnv
from kvgym.errors import ConfigError, SimulationError, did_you_mean
from kvgym.workloads.building.kept import KeptSource

Infos = dict[str, Any]
_Step = tuple[Observation, np.ndarray, np.ndarray, Infos]
"""Observation, rewards, terminations and infos of one step."""
_OWN = ("max_episode_steps", "seed_pool", "threads")
"""What the vector environment takes beside the arguments of the scalar one."""
_PER_THREAD = 16
"""Episodes that keep a thread busy for longer than it takes to wake it."""


class RoutingVectorEnv(VectorEnv[Observation, np.ndarray, np.ndarray]):
    """`num_envs` independent copies of `kvgym.envs.routing.RoutingEnv`, for ``gymnasium.make_vec``.

    ## Semantics
    Observations, actions, rewards, infos and seeds are those of `gymnasium.vector.SyncVectorEnv` over `num_envs` scalar
    environments with autoreset mode ``SAME_STEP``: the step that ends an episode returns the first observation of the
    next one, and the end under ``final_obs`` and ``final_info``. ``reset(seed=n)`` seeds the copies with n, n + 1, ...
    An invalid action goes to the first allowed worker and is counted, as there.

    ## Speed
    Copies of the simulated backend are stepped by compiled code, in as many threads as `threads` says; results do not
    depend on it. What compiled code does not cover (fleets that change, KV events, several routers, other backends) is
    stepped copy by copy, with the same results. Reward terms that need request records cost some microseconds a copy.

    ## Arguments
    Those of the scalar environment but ``render_mode``, and

    - ``num_envs``: number of copies.
    - ``max_episode_steps``: step limit after which a copy is truncated; None: none.
    - ``seed_pool``: None: each reset draws a new episode seed, as the scalar environment does. n: it draws one of the
      seeds 0 .. n - 1, whose workloads are generated once and kept in memory, which makes resets several times as
      fast. Episodes then repeat: a policy may learn them by heart, so evaluate it on other seeds.
    - ``threads``: None: one per CPU, but no more than the copies keep busy.

    Raises:
        ConfigError: an argument is not acceptable.
    """

    metadata: dict[str, Any] = {"render_modes": [], "autoreset_mode": AutoresetMode.SAME_STEP}  # noqa: RUF012

    def __init__(
        self,
        num_envs: int = 1,
        max_episode_steps: int | None = None,
        seed_pool: int | None = None,
        threads: int | None = None,
        **arguments: Any,
    ) -> None:
        given = {"num_envs": num_envs, "max_episode_steps": max_episode_steps}
        for name, value in (given | {"seed_pool": seed_pool, "threads": threads}).items():
            _check_count(name, value, optional=name != "num_envs")
        if arguments.get("render_mode") is not None:
            raise ConfigError("a vector environment draws nothing; render one made by gymnasium.make")
        known = [name for name in inspect.signature(RoutingEnv).parameters if name != "render_mode"]
        for name in arguments.keys() - {*known, "render_mode"}:
            own = [*known, "num_envs", *_OWN]
            hint = did_you_mean(name, own) or ";"
            raise ConfigError(f"kvgym/Routing-v0 as vectors does not take {name!r}{hint} it takes {', '.join(own)}")
        first = RoutingEnv(**arguments)
        if seed_pool is not None:
            first._source, first._seeds = KeptSource(first._source), seed_pool
        self._envs = [copy.copy(first) for _ in range(num_envs)]
        self.num_envs = num_envs
        self.single_action_space, self.single_observation_space = first.action_space, first.observation_space
        self.action_space = batch_space(self.single_action_space, num_envs)
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self._reward, self._workers = first._reward, int(first.action_space.n)
        self._limit = max_episode_steps
        self._threads = threads or max(min(cpus(), num_envs // _PER_THREAD), 1)
        self._elapsed = np.zeros(num_envs, np.int64)
        self._invalid = np.zeros(num_envs, np.int64)
        self._episodes = np.zeros(num_envs, np.int64)
        self._skipped = np.zeros(num_envs, np.int64)
        self._batch: SimulatedBatch | None = None
        self._ready = False

    def reset(
        self, *, seed: int | Sequence[int | None] | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Observation, Infos]:
        """Start an episode in every copy.

        Args:
            seed: of copy 0, the others get the following numbers; or one seed (or None) for each.
            options: ``{"seed": n}`` fixes the episode seeds to n, n + 1, ...

        Raises:
            ConfigError: there are not as many seeds as copies, or `options` holds something else.
        """
        seeds = self._seeds(seed)
        observations: list[Observation] = []
        infos: Infos = {}
        for i, own in enumerate(seeds):
            observation, info = self._reset_one(i, own, _shifted(options, i))
            observations.append(observation)
            infos = self._add_info(infos, info, i)
        self._batch = self._new_batch()
        self._ready = True
        return _stacked(observations), infos

    def step(self, actions: Any) -> tuple[Observation, np.ndarray, np.ndarray, np.ndarray, Infos]:
        """Send the waiting request of every copy to a worker and run each to its next one.

        Args:
            actions: a worker for each copy, shape (num_envs,).

        Raises:
            SimulationError: there was no reset.
            ConfigError: the number of actions is not that of the copies.
        """
        if not self._ready:
            raise SimulationError("there are no episodes yet; call reset() first")
        if np.shape(actions) != (self.num_envs,):
            raise ConfigError(f"step takes {self.num_envs} actions, shape ({self.num_envs},), got {np.shape(actions)}")
        actions = np.asarray(actions)
        if self._batch is None:
            observation, reward, terminated, infos = self._step_each(actions)
        else:
            observation, reward, terminated, infos = self._step_batch(self._batch, actions)
        self._elapsed += 1
        truncated = np.zeros(self.num_envs, bool) if self._limit is None else self._elapsed >= self._limit
        for i in np.flatnonzero(terminated | truncated).tolist():
            infos = self._restart(i, observation, infos)
        return observation, reward, terminated, truncated, infos

    def call(self, name: str, *args: Any, **kwargs: Any) -> tuple[Any, ...]:
        """Return what each copy's attribute `name` is, or returns when called, as gymnasium's vector environments do.

        Copies that compiled code steps keep no decision of their own: ask this object for ``action_masks()``.
        """
        found = [getattr(env, name) for env in self._envs]
        return tuple(each(*args, **kwargs) if callable(each) else each for each in found)

    def action_masks(self) -> np.ndarray:
        """Return which workers may be chosen, bool (num_envs, workers)."""
        if self._batch is not None:
            return np.ones((self.num_envs, self._workers), bool)
        return np.stack([env.action_masks() for env in self._envs])

    def close_extras(self, **kwargs: Any) -> None:
        """End the threads, and the connections of live backends."""
        if self._batch is not None:
            self._batch.close()
        for env in self._envs:
            env.close()

    def _seeds(self, seed: int | Sequence[int | None] | None) -> list[int | None]:
        if seed is None or isinstance(seed, int | np.integer):
            return [None if seed is None else int(seed) + i for i in range(self.num_envs)]
        if len(seed) != self.num_envs:
            raise ConfigError(f"reset takes one seed or {self.num_envs}, got {len(seed)}")
        return list(seed)

    def _reset_one(self, i: int, seed: int | None, options: dict[str, Any] | None) -> tuple[Observation, Infos]:
        """Start the next episode of copy i."""
        self._elapsed[i] = self._invalid[i] = 0
        observation, info = self._envs[i].reset(seed=seed, options=options)
        self._episodes[i], self._skipped[i] = info["episode_seed"], info["skipped_episodes"]
        return observation, info

    def _restart(self, i: int, observation: Observation, infos: Infos) -> Infos:
        """Take note of how the episode of copy i has ended, and put the start of its next one in the results."""
        final = {
            "final_obs": {name: rows[i].copy() for name, rows in observation.items()},
            "final_info": info_of(infos, i),
        }
        infos = self._add_info(infos, final, i)
        first, info = self._reset_one(i, None, None)
        for name, row in first.items():
            observation[name][i] = row
        infos = self._add_info(infos, info, i)
        if self._batch is not None:
            self._batch.replace(i, cast(SimulatedBackend, self._envs[i].backend))
        return infos

    def _new_batch(self) -> SimulatedBatch | None:
        """Return what steps all copies together; None if compiled code does not cover them."""
        if self._batch is not None:
            self._batch.close()
        backends = [env.backend for env in self._envs]
        native = [each for each in backends if type(each) is SimulatedBackend and each.batchable]
        return SimulatedBatch(native, self._threads) if len(native) == len(backends) else None

    def _step_batch(self, batch: SimulatedBatch, actions: np.ndarray) -> _Step:
        route, wrong = self._routes(actions)
        self._invalid += wrong
        before, had_ended = batch.progress()
        batch.advance(route)
        after, ended = batch.progress()
        reward, terms = self._reward.of_many(before, after, lambda i: self._envs[i].backend.completions())
        infos = {
            "time_s": after.time_s,
            "dt_s": after.time_s - before.time_s,
            "completed": ended - had_ended,
            "invalid_actions": self._invalid.copy(),
            "action_mask": np.ones((self.num_envs, self._workers), np.int8),
            "episode_seed": self._episodes.copy(),
            "skipped_episodes": self._skipped.copy(),
            "rewards": _everywhere(terms),
        }
        observation = {"request": batch.out.request.copy(), "workers": batch.out.workers.copy()}
        return observation, reward, batch.out.code == FINISHED, _everywhere(infos)

    def _step_each(self, actions: np.ndarray) -> _Step:
        """Step the copies one by one."""
        infos: Infos = {}
        steps = [env.step(action) for env, action in zip(self._envs, actions, strict=True)]
        for i, (*_, info) in enumerate(steps):
            infos = self._add_info(infos, info, i)
        observations, rewards, terminated, *_ = zip(*steps, strict=True)
        return _stacked(observations), np.array(rewards), np.array(terminated), infos

    def _routes(self, actions: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the worker for each copy, int64, and where the action was none, bool; every worker may be chosen."""
        if actions.dtype.kind not in "iu":
            actions = np.array([as_index(action) for action in actions.tolist()])
        wrong = (actions < 0) | (actions >= self._workers)
        return np.where(wrong, 0, actions).astype(np.int64), wrong


def _check_count(name: str, value: Any, optional: bool) -> None:
    """Check that an argument is a whole number >= 1, or None if it is `optional`.

    Raises:
        ConfigError: it is not.
    """
    whole = isinstance(value, int | np.integer) and not isinstance(value, bool)
    if not (whole and value >= 1) and not (optional and value is None):
        raise ConfigError(f"{name} must be a whole number >= 1{' or None' if optional else ''}, got {value!r}")


def _shifted(options: dict[str, Any] | None, i: int) -> dict[str, Any] | None:
    """Return the options of copy i: its episode seed is i more than that of copy 0 (its environment checks them)."""
    seed = options.get("seed") if isinstance(options, Mapping) else None
    whole = isinstance(seed, int | np.integer) and not isinstance(seed, bool) and seed >= 0
    return {**options, "seed": seed + i} if whole else options  # type: ignore[dict-item, operator]


def _stacked(observations: Sequence[Observation]) -> Observation:
    return {name: np.stack([each[name] for each in observations]) for name in observations[0]}


def _everywhere(infos: Infos) -> Infos:
    """Return `infos` with masks, as gymnasium has them, that say that every copy has every key."""
    one = next(iter(infos.values()))
    masks = np.ones((len(infos), len(one)), bool)  # one array for all of them: they cost as much as a few copies
    return infos | {f"_{name}": mask for name, mask in zip(infos, masks, strict=True)}


def info_of(infos: Infos, i: int) -> Infos:
    """Return what the infos of any vector environment say about copy i, as plain values; without ``final_obs``."""
    names = [name for name in infos if not name.startswith("_") and name != "final_obs" and infos[f"_{name}"][i]]
    found = {name: infos[name] for name in names}
    return {name: info_of(value, i) if isinstance(value, dict) else _plain(value[i]) for name, value in found.items()}


def _plain(value: Any) -> Any:
    """Return a number as Python has it, an array as a copy, anything else as it is."""
    if isinstance(value, np.ndarray):
        return value.copy()
    return value.item() if isinstance(value, np.generic) else value
