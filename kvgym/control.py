"""Controllers keep one contract; adapters lead to and from models with stable-baselines3's `predict`."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Protocol

import numpy as np

from kvgym.config.options import check_options
from kvgym.errors import ConfigError, SimulationError
from kvgym.seeding import stream, stream_seed
from kvgym.types import Decision, FleetSpec


class Controller(Protocol):
    """Anything that routes: a heuristic, a trained agent, in the simulator or live.

    The caller resets it at the start of an episode, then, for every request, first shows it what has finished since
    the last decision and then asks it.

    A controller that predicts latencies may have an attribute ``predicted_s`` (float): after each `act`, the seconds
    from this decision to the end of the answer that it expects at the worker it has chosen; -1: no prediction. Runs
    write it to RECORD.predicted_s, and reports compare it with what came.
    """

    def reset(self, spec: FleetSpec, seed: int) -> None:
        """Forget everything and start an episode; the same seed and decisions give the same choices."""
        ...

    def act(self, decision: Decision) -> int:
        """Return a worker for this request, one that `decision.mask` allows."""
        ...

    def observe(self, records: np.ndarray) -> None:
        """Take note of requests that finished, failed or were rejected: RECORD rows in order of completion."""
        ...


class RoutingController:
    """Base of the heuristics: keeps the fleet and a random stream of its own, and learns nothing from completions.

    One that remembers what workers hold asks `restarted` at each decision and forgets those workers. One with options
    is a dataclass, ``@dataclass(eq=False)``, whose fields are made with `kvgym.config.options.option`.
    """

    concentrates: ClassVar[str] = ""
    """Why the rule may send nearly everything to one worker while others idle; reports flag it, with this reason."""

    spec: FleetSpec
    rng: np.random.Generator
    predicted_s: float = -1.0
    _incarnation: np.ndarray | None

    def __post_init__(self) -> None:
        """Check the options of a router that is a dataclass; one with more to check calls this first.

        Raises:
            ConfigError: a value is not allowed.
        """
        check_options(self)

    def reset(self, spec: FleetSpec, seed: int) -> None:
        """Start an episode; subclasses that remember something extend this."""
        self.spec = spec
        self.rng = stream(seed, "controller")
        self._incarnation = None

    def restarted(self, decision: Decision) -> list[int]:
        """Return the workers that have lost their caches since the last call of this episode, ascending."""
        lost = lost_caches(self._incarnation, decision.incarnation)
        self._incarnation = decision.incarnation
        return lost

    def act(self, decision: Decision) -> int:
        """Return the chosen worker."""
        raise NotImplementedError(f"{type(self).__name__} must define act(decision)")

    def observe(self, records: np.ndarray) -> None:
        """Ignore completions: most heuristics read all they need from the decision."""


def lost_caches(before: np.ndarray | None, now: np.ndarray | None) -> list[int]:
    """Return the workers that were started anew between two `Decision.incarnation`, ascending; None: none ever was."""
    if now is None:
        return []
    return np.flatnonzero(now if before is None else now != before).tolist()


def allowed_workers(mask: np.ndarray) -> np.ndarray:
    """Return the ids of the workers that may be chosen, ascending, int64 (k,) with k >= 1.

    Raises:
        SimulationError: the mask allows nobody.
    """
    workers = np.flatnonzero(mask)
    if len(workers) == 0:
        raise SimulationError("the mask allows no worker; a decision must leave at least one to choose")
    return workers


def least(values: np.ndarray, mask: np.ndarray) -> np.ndarray:
    """Return all allowed workers whose value is the smallest, ascending, int64 (k,) with k >= 1."""
    workers = allowed_workers(mask)
    scores = values[workers]
    return workers[scores == scores.min()]


class ControllerPolicy:
    """Gives a controller the `predict` of a stable-baselines3 model, so that `evaluate_policy` and scripts can run it.

    Controllers read the structured decision, not the observation, so this object belongs to one environment. It uses
    four attributes of `env.unwrapped`: `decision` (the pending Decision), `fleet` (a FleetSpec, a new object after
    every reset: this is how a new episode is noticed), `episode_seed` and `completed` (RECORD rows since the last
    decision).

    Args:
        controller: the controller to ask.
        env: the environment that it plays, with any wrappers around it; not a vector of several.
    """

    def __init__(self, controller: Controller, env: Any) -> None:
        self.controller = controller
        self.env = env
        self._fleet: FleetSpec | None = None
        self._decision: Decision | None = None
        self._action = 0

    def predict(
        self,
        observation: Any,
        state: tuple[np.ndarray, ...] | None = None,
        episode_start: np.ndarray | None = None,
        deterministic: bool = False,
    ) -> tuple[np.ndarray, tuple[np.ndarray, ...] | None]:
        """Return the action for the environment's pending decision, and `state` as it came.

        The action has shape () or, if the observation has a batch axis (SB3's one-environment VecEnv), (1,). Asked
        twice about one decision it gives the same answer and the controller is asked once.

        Raises:
            SimulationError: a batch of several observations, which one controller cannot answer.
        """
        env = self.env.unwrapped
        if env.decision is not self._decision:
            if env.fleet is not self._fleet:
                self._fleet = env.fleet
                self.controller.reset(env.fleet, env.episode_seed)
            else:
                self.controller.observe(env.completed)
            self._decision = env.decision
            self._action = self.controller.act(env.decision)
        batch = _batch_size(observation, self.env.observation_space)
        if batch is None:
            return np.array(self._action), state
        if batch != 1:
            raise SimulationError(f"a controller plays one environment, got {batch} observations; use one object each")
        return np.array([self._action]), state


class ModelController:
    """Lets a trained model with stable-baselines3's `predict` route, recurrent and maskable ones included.

    If the model chooses a worker that is masked or does not exist, the first allowed worker is taken.

    Args:
        model: a trained SB3 or sb3-contrib model, or anything with the same `predict`.
        deterministic: take the most likely action; False samples, after seeding the model (and with it torch and
            numpy) at every reset.
        encode: decision -> observation; none: `kvgym.encoding.decisions.encode`, as one row for a model whose
            observation space is a one-dimensional box (trained behind gymnasium's ``FlattenObservation``).
    """

    def __init__(self, model: Any, deterministic: bool = True, encode: Callable[[Decision], Any] | None = None) -> None:
        self.model = model
        self.deterministic = deterministic
        self._encode = encode
        self._maskable = "action_masks" in inspect.signature(model.predict).parameters
        self._flat = len(getattr(getattr(model, "observation_space", None), "shape", None) or ()) == 1
        self._state: Any = None
        self._start = True

    def check_workers(self, workers: int) -> None:
        """Check that the model can play a fleet of so many workers, as far as it says for how many it was made.

        Raises:
            ConfigError: it was trained for another number and does not carry over.
        """
        trained = getattr(getattr(self.model, "action_space", None), "n", None)
        if trained is not None and int(trained) != workers and not hasattr(_policy(self.model), "choose"):
            raise ConfigError(
                f"the {type(self.model).__name__} model was trained for {trained} workers, this fleet has {workers}; "
                "train it anew, or train a set policy (scripts/train_sb3.py), which plays on any fleet"
            )

    def reset(self, spec: FleetSpec, seed: int) -> None:
        """Start an episode: a recurrent state is dropped."""
        self._state, self._start = None, True
        if not self.deterministic:
            self.model.set_random_seed(stream_seed(seed, "controller") % 2**32)

    def act(self, decision: Decision) -> int:
        """Return the model's choice for the encoded decision."""
        observation = (self._encode or self._usual)(decision)
        masks = {"action_masks": decision.mask} if self._maskable else {}
        action, self._state = self.model.predict(
            observation,
            state=self._state,
            episode_start=np.array([self._start]),
            deterministic=self.deterministic,
            **masks,
        )
        self._start = False
        worker = int(np.asarray(action).item())
        if 0 <= worker < len(decision.mask) and decision.mask[worker]:
            return worker
        return int(allowed_workers(decision.mask)[0])

    def observe(self, records: np.ndarray) -> None:
        """Ignore completions: what a trained model may know is in its observation."""

    def _usual(self, decision: Decision) -> Any:
        from kvgym.encoding.decisions import encode

        arrays = encode(decision)
        return np.concatenate([arrays[name].ravel() for name in sorted(arrays)]) if self._flat else arrays


def _policy(model: Any) -> Any:
    return getattr(model, "policy", model)


def _batch_size(observation: Any, space: Any) -> int | None:
    """Return the length of the observation's batch axis, or None if it is a single observation of `space`."""
    if isinstance(observation, Mapping):
        key = next(iter(observation))
        observation, space = observation[key], space[key]
    return None if np.ndim(observation) == len(space.shape) else len(observation)
