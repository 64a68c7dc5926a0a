from __future__ import annotations

import sys
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest
from gymnasium import spaces

from kvgym.control import ControllerPolicy, ModelController, allowed_workers, least
from kvgym.errors import SimulationError
from kvgym.types import RECORD, Decision, FleetSpec


def decision(request: int = 0, mask: tuple[bool, ...] = (True, True, True)) -> Decision:
    zeros = np.zeros(len(mask), np.int64)
    return Decision(
        time_s=float(request), request=request, node=1, prompt_tokens=4, prompt_chars=16, max_new_tokens=1,
        session=0, turn=0, priority=0, inflight=zeros, inflight_tokens=zeros, running=zeros, queued=zeros,
        kv_used_tokens=zeros, kv_capacity_tokens=zeros + 100, mask=np.array(mask),
    )  # fmt: skip


class Diary:
    """A controller that writes down its calls and answers the request number."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, int]] = []

    def reset(self, spec: FleetSpec, seed: int) -> None:
        self.calls.append(("reset", seed))

    def act(self, decision: Decision) -> int:
        self.calls.append(("act", decision.request))
        return decision.request

    def observe(self, records: np.ndarray) -> None:
        self.calls.append(("observe", len(records)))


class ScriptedEnv:
    """The attributes of a routing environment that the adapter reads."""

    def __init__(self) -> None:
        self.observation_space = spaces.Dict({"workers": spaces.Box(0.0, 1.0, (3, 2))})
        self.episode_seed = 0
        self.unwrapped = self

    def start(self, seed: int) -> None:
        self.episode_seed = seed
        self.fleet = SimpleNamespace()
        self.show(0, 0)

    def show(self, request: int, completed: int) -> None:
        self.decision = decision(request)
        self.completed = np.zeros(completed, RECORD)


def test_allowed_workers__empty_mask_is_an_error():
    with pytest.raises(SimulationError, match="allows no worker"):
        allowed_workers(np.zeros(3, bool))


def test_least__returns_all_ties_among_the_allowed():
    mask = np.array([True, False, True, True])
    assert least(np.array([2, 0, 1, 1]), mask).tolist() == [2, 3]


def test_controller_policy__resets_per_episode_and_observes_between_decisions():
    env, diary = ScriptedEnv(), Diary()
    policy = ControllerPolicy(diary, env)
    observation = {"workers": np.zeros((3, 2))}
    env.start(7)
    assert policy.predict(observation)[0] == 0
    assert policy.predict(observation)[0] == 0
    env.show(2, 5)
    action, state = policy.predict(observation, state=None, deterministic=True)
    assert (int(action), action.shape, state) == (2, (), None)
    env.start(8)
    policy.predict(observation)
    expected = [("reset", 7), ("act", 0), ("observe", 5), ("act", 2), ("reset", 8), ("act", 0)]
    assert diary.calls == expected


def test_controller_policy__keeps_the_batch_axis_of_a_single_env_vector():
    env = ScriptedEnv()
    policy = ControllerPolicy(Diary(), env)
    env.start(0)
    assert policy.predict({"workers": np.zeros((1, 3, 2))})[0].shape == (1,)
    with pytest.raises(SimulationError, match="got 2 observations"):
        policy.predict({"workers": np.zeros((2, 3, 2))})


class Chooser:
    """A model that always answers `action` and remembers what it was given."""

    def __init__(self, action: int) -> None:
        self.action, self.given = action, []

    def predict(self, observation, state=None, episode_start=None, deterministic=False):
        self.given.append((observation["node"], state, bool(episode_start[0]), deterministic))
        return np.array(self.action), (0 if state is None else state) + 1


class MaskedChooser:
    """A model in the manner of sb3-contrib's MaskablePPO."""

    def predict(self, observation, state=None, episode_start=None, deterministic=False, action_masks=None):
        return np.array(np.flatnonzero(action_masks)[-1]), None


@pytest.fixture
def encoding(monkeypatch):
    module = ModuleType("kvgym.encoding.decisions")
    module.encode = lambda decision: {"node": decision.node}
    monkeypatch.setitem(sys.modules, "kvgym.encoding.decisions", module)


def test_model_controller__carries_state_until_reset(encoding):
    model = Chooser(1)
    controller = ModelController(model)
    for _ in range(2):
        controller.reset(None, 0)
        assert controller.act(decision()) == 1
        assert controller.act(decision()) == 1
    assert model.given == [(1, None, True, True), (1, 1, False, True)] * 2


def test_model_controller__masked_or_impossible_choice_becomes_the_first_allowed(encoding):
    for action in (0, 9, -1):
        controller = ModelController(Chooser(action))
        controller.reset(None, 0)
        assert controller.act(decision(mask=(False, True, True))) == 1


def test_model_controller__passes_masks_to_models_that_take_them(encoding):
    controller = ModelController(MaskedChooser())
    controller.reset(None, 0)
    assert controller.act(decision(mask=(True, True, False))) == 1


def test_model_controller__sampling_is_seeded_at_reset(encoding):
    model = Chooser(0)
    model.set_random_seed = lambda seed: model.given.append(seed)
    controller = ModelController(model, deterministic=False)
    for seed in (3, 3, 4):
        controller.reset(None, seed)
    assert model.given[0] == model.given[1] != model.given[2]
