from __future__ import annotations

import math

import numpy as np
import pytest

from controllers.routing.lbgr_release import LBGRRelease
from kvgym.types import DONE, FAILED, REJECTED


@pytest.fixture
def router(start):
    return start(LBGRRelease(), 3)


def test_defaults__are_those_of_the_release(router):
    assert (router.ms_per_char, router.keep, router.parts, router.tick_s) == (1.0, 31, 32, 0.02)
    assert (router.margin_ms, router.forgetting, router.p0) == (1.0, 0.992, 1e6)
    assert (router.max_tree_chars, router.evict_every_s) == (16777216, 60.0)


def test_cold_fleet__starts_with_worker_0_and_spreads_by_load(router, ask):
    assert [router.act(ask(node, [0] * 3, request=node)) for node in (2, 5, 6)] == [0, 1, 2]
    assert router.load_ms.tolist() == [800, 800, 40]


def test_simultaneous_equals__spread_because_each_choice_adds_load(router, ask):
    choices = [router.act(ask(6, [0] * 3, request=request, prompt_chars=5000)) for request in range(6)]
    assert choices == [0, 1, 2, 0, 1, 2]


def test_twin__finds_its_text_at_once(router, ask):
    router.act(ask(2, [0] * 3, request=0, prompt_chars=8000))
    router.load_ms[:] = 0
    assert router.act(ask(2, [0] * 3, request=1, prompt_chars=8000)) == 0
    assert router.load_ms.tolist() == [7200, 0, 0]


def test_margin__a_later_worker_must_be_better_by_more_than_a_millisecond(router, ask):
    for load, expected in ((1, 0), (2, 1)):
        router.reset(router.spec, 0)
        router.load_ms[0] = load
        assert router.act(ask(2, [0] * 3)) == expected


def test_predicted_s__is_base_plus_load_plus_bias_before_this_request(router, ask, finished):
    """400 characters twice; the first answer after 2 s teaches a bias of 2,000 - 800 ms, nearly in full (p0 1e6)."""
    assert router.predicted_s == -1.0
    only = [True, False, False]
    router.act(ask(2, [0] * 3, request=0, mask=only))
    assert router.predicted_s == pytest.approx(0.8)
    router.act(ask(5, [0] * 3, request=1, mask=only))
    assert router.predicted_s == pytest.approx(1.6)
    router.observe(finished((0, DONE, 2.0)))
    load_ms = int(router.load_ms[0])
    router.act(ask(3, [0] * 3, time_s=2.0, request=2, mask=only))
    assert router.predicted_s == pytest.approx(0.4 + load_ms / 1000 + 1.2, rel=1e-4)


def test_base__is_at_least_one_millisecond(router, ask):
    router.act(ask(2, [0] * 3, request=0))
    router.load_ms[:] = [0, 100, 100]
    router.act(ask(2, [0] * 3, request=1))
    assert router.load_ms.tolist() == [1, 100, 100]


def test_decay__equals_the_literal_loop(router):
    rng, now_us, tick = np.random.default_rng(1), 0, 0
    literal = [0, 0, 0]
    for _ in range(400):
        now_us += int(rng.choice([0, 1, 7_000, 20_000, 40_000, 333_333, 1_000_000]))
        while tick < now_us // 20_000:
            literal = [math.floor(p * 31 / 32) for p in literal]
            tick += 1
        router._advance(now_us / 1e6)
        assert router.load_ms.tolist() == literal
        worker, added = int(rng.integers(3)), int(rng.integers(1, 40_000))
        router.load_ms[worker] += added
        literal[worker] += added


def test_ticks__a_multiple_of_the_period_lies_on_its_tick(router):
    assert [router._ticks(tick * 0.02) for tick in range(2000)] == list(range(2000))
    assert router._ticks(0.0399) == 1


def test_release__takes_back_what_the_decay_left(router, ask, finished):
    router.act(ask(2, [0] * 3, 0.0, request=0))
    router.load_ms[0] += 5000
    router.observe(finished((0, DONE, 0.05)))
    after = 5800 * 31 // 32 * 31 // 32 - round(800 * (31 / 32) ** 2)
    assert router.load_ms.tolist() == [after, 0, 0]


@pytest.mark.parametrize("status", [FAILED, REJECTED])
def test_release__failures_too_but_they_teach_nothing(status, router, ask, finished):
    router.act(ask(2, [0] * 3, 0.0, request=0))
    router.observe(finished((0, status, 0.001)))
    assert router.load_ms.tolist() == [0, 0, 0]
    assert router.bias_ms.tolist() == [0.0, 0.0, 0.0]


def test_release__never_goes_below_zero(router, ask, finished):
    router.act(ask(2, [0] * 3, 0.0, request=0))
    router.load_ms[0] = 3
    router.observe(finished((0, DONE, 0.001), (77, DONE, 0.001)))
    assert router.load_ms.tolist() == [0, 0, 0]


def test_retry__moves_the_reservation(router, ask):
    router.act(ask(2, [0] * 3, 0.0, request=0))
    router.act(ask(2, [0] * 3, 0.001, request=0, mask=[False, True, True]))
    assert router.load_ms.tolist() == [0, 800, 0]


def test_bias__is_the_excess_over_the_prediction_at_least_one(router, ask, finished):
    router.act(ask(2, [0] * 3, 0.0, request=0))
    router.observe(finished((0, DONE, 2.0)))
    assert router.bias_ms[0] == pytest.approx(1200.0, rel=1e-5)
    router.act(ask(5, [0] * 3, 10.0, request=1, mask=[False, True, False]))
    router.observe(finished((1, DONE, 10.1)))
    assert router.bias_ms[1] == pytest.approx(1.0, rel=1e-5)


def test_bias__turns_the_choice(router, ask):
    router.bias_ms[:] = [50.0, 20.0, 30.0]
    assert router.act(ask(2, [0] * 3)) == 1


def test_completion__refreshes_the_text(router, ask, finished):
    router.act(ask(3, [0] * 3, 0.0, request=0))
    router.tree.insert(0, 2, 1.0)
    router.observe(finished((0, DONE, 2.0)))
    router.tree.evict(800)
    assert router.tree.match_chars(3)[0] == 800


def literal_rls(residuals: list[float]) -> list[float]:
    """The release's recursive least squares: full 4x4 covariance, masked gain, phi = (1, 0, 0, 0)."""
    theta, forgetting = 0.0, 0.992
    p, phi, learn = np.eye(4) * 1e6, np.array([1.0, 0.0, 0.0, 0.0]), np.array([1.0, 0.0, 0.0, 0.0])
    out = []
    with np.errstate(all="ignore"):
        for y in residuals:
            row = p @ phi
            gain = row / (forgetting + phi @ row) * learn
            theta += gain[0] * (y - theta)
            p = (p - np.outer(gain, phi @ p)) / forgetting
            out.append(theta)
    return out


def test_bias__equals_the_release_until_that_overflows(router):
    # Equal for as long as the release is finite; its masked variances overflow at update 86,649.
    residuals = np.random.default_rng(3).exponential(300.0, 86_700).clip(1.0)
    release = literal_rls(residuals.tolist())
    assert int(np.flatnonzero(np.isnan(release))[0]) + 1 == 86_649
    ours = []
    for residual in residuals.tolist():
        router._learn(0, residual)
        ours.append(float(router.bias_ms[0]))
    np.testing.assert_allclose(ours[:86_648], release[:86_648], rtol=1e-12)
    assert np.isfinite(ours).all()


def test_200000_updates__stay_finite_and_the_choice_stays_sensible(router, ask, finished):
    # Worker 0 answers in 0.3 s, workers 1 and 2 at once: the learned bias must send an equal prompt away from 0.
    for request in range(0, 200_000, 1000):
        for i in range(request, request + 1000):
            router._inflight[i] = _reservation(i % 3)
        rows = [(i, DONE, 0.3 if i % 3 == 0 else 0.001) for i in range(request, request + 1000)]
        router.observe(finished(*rows))
    assert np.isfinite(router.bias_ms).all()
    assert router.bias_ms[0] == pytest.approx(300.0)
    assert router.bias_ms[1:].tolist() == pytest.approx([1.0, 1.0])
    choices = [router.act(ask(6, [0] * 3, 10.0, request=request, prompt_chars=90)) for request in range(4)]
    assert choices == [1, 2, 1, 2]


def _reservation(worker: int):
    from controllers.routing.lbgr_release import _Reservation

    return _Reservation(worker, 6, 0.0, 0.0, 0, 0)
