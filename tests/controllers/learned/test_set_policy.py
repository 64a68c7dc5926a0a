from __future__ import annotations

import numpy as np
import pytest
import torch

from controllers.learned.set_policy import SetPolicy
from kvgym.errors import ConfigError


@pytest.fixture
def observe():
    """Return a function that makes one observation with random rows."""

    def observe(workers, seed=0):
        rng = np.random.default_rng(seed)
        shapes = {"request": (4,), "workers": (workers, 9), "work": (workers, 9)}
        return {name: rng.random(shape, np.float32) for name, shape in shapes.items()}

    return observe


@pytest.fixture
def policy(make):
    def policy(**options):
        env = make(3)
        return SetPolicy(env.observation_space, env.action_space, lambda _: 1e-3, **options)

    return policy


def test_logits__follow_the_workers_when_these_change_places(policy, observe):
    torch.manual_seed(0)
    net, one = policy(), observe(3)
    order = [2, 0, 1]
    other = {name: array if name == "request" else array[order] for name, array in one.items()}
    batch = {name: torch.as_tensor(np.stack((one[name], other[name]))) for name in one}
    logits = net.get_distribution(batch).distribution.logits.detach().numpy()
    assert logits[1] == pytest.approx(logits[0][order], abs=1e-6)
    assert len(set(logits[0].tolist())) == 3
    values = net.predict_values(batch)
    assert values[0].item() == pytest.approx(values[1].item(), abs=1e-6)


def test_choose__plays_on_any_number_of_workers_and_obeys_the_mask(policy, observe):
    net = policy()
    for workers in (1, 3, 10, 100):
        seen = {net.choose(observe(workers, seed), np.ones(workers, bool)) for seed in range(40)}
        assert seen <= set(range(workers)) and (workers == 1 or len(seen) > 1)
    mask = np.array([False, False, True, False])
    assert all(net.choose(observe(4, seed), mask) == 2 for seed in range(10))


def test_choose__is_the_greedy_action_of_predict(policy, observe):
    net = policy()
    for seed in range(20):
        one = observe(3, seed)
        assert net.choose(one, np.ones(3, bool)) == int(net.predict(one, deterministic=True)[0])


def test_residual__the_untrained_policy_is_about_the_blend_rule(policy, observe):
    net = policy(residual_per_s=5.0)
    for seed in range(20):
        one = observe(3, seed)
        one["work"][:, -1] *= 50.0
        assert net.choose(one, np.ones(3, bool)) == int(one["work"][:, -1].argmin())


def test_residual__needs_the_work_rows(make):
    env = make(3, work_rows=False)
    with pytest.raises(ConfigError, match="work_rows"):
        SetPolicy(env.observation_space, env.action_space, lambda _: 1e-3, residual_per_s=5.0)


def test_bounds__overload_gives_finite_logits_and_values(policy, observe):
    net, one = policy(residual_per_s=5.0), observe(3)
    one["work"][:] = 1e4
    batch = {name: torch.as_tensor(array[None]) for name, array in one.items()}
    assert torch.isfinite(net.predict_values(batch)).all()
    assert torch.isfinite(net.get_distribution(batch).distribution.logits).all()
