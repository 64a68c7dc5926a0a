from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from kvgym.backends.base import Snapshot
from kvgym.envs.routing import RoutingEnv
from kvgym.envs.viewer.frame import OTHER, PRIVATE, Frame, Part, make_frame

ROWS = [
    {"path": [["a", 40], ["x", 10]], "output_tokens": 2},
    {"path": [["b", 30]], "output_tokens": 1, "arrival_s": 50.0},
    {"path": [["a", 40], ["y", 20]], "output_tokens": 1, "arrival_s": 100.0},
    {"path": [["c", 500]], "output_tokens": 1, "arrival_s": 101.0},
]
COST = {"model": "linear", "p_tok_ms": 100.0, "d0_ms": 1000.0}


def fleet(resident: list[list[int]], used: list[int], running: list[int], queued: list[int]) -> Snapshot:
    counts = (np.array(running) + queued, np.array(running), np.array(queued))
    return Snapshot(9, 5, *counts, np.array(used), np.full(len(used), 100), np.array(resident).reshape(-1, 3), 7)


def frame(*args: list) -> Frame:
    return Frame(1.0, fleet(*args), np.zeros(len(args[1]), bool), None, -1, 0, 0, None, None, None)


@pytest.fixture
def played() -> RoutingEnv:
    """Three of four requests are routed, the third has just been sent to worker 0, the fourth waits."""
    env = RoutingEnv({"source": "fixed", "rows": ROWS}, {"workers": 2, "capacity_tokens": 200, "cost": COST})
    env.reset(seed=0)
    for worker in (0, 1, 0):
        env.step(worker)
    return env


def test_frame__says_where_the_episode_stands(played):
    picture = make_frame(played._backend, played.decision, *played._last)
    assert picture.time_s == 101.0
    assert (picture.fleet.requests, picture.fleet.routed, picture.done, picture.lost) == (4, 3, 2, 0)
    assert (picture.last.request, picture.worker, picture.last.hit_tokens.tolist()) == (2, 0, [40, 0])
    assert (picture.fleet.inflight.tolist(), picture.fleet.queued.tolist()) == ([1, 0], [0, 0])
    assert picture.fleet.kv_capacity_tokens.tolist() == [200, 200]
    # 50 tokens at 0.1 s and one decode step of 1 s; 30 tokens at 0.1 s
    assert (picture.p50_s, picture.p95_s) == pytest.approx((4.5, 3.0 + 0.95 * 3.0))
    assert picture.hit_frac == 0.0
    assert not picture.down.any()


def test_frame__at_the_end_counts_everything(played):
    played.step(1)
    picture = make_frame(played._backend, played.decision, *played._last)
    assert (picture.fleet.routed, picture.done, picture.lost) == (4, 3, 1)
    assert picture.hit_frac == pytest.approx(40 / 140)
    assert picture.fleet.inflight.tolist() == [0, 0]


def test_frame__at_the_start_has_no_numbers_yet():
    env = RoutingEnv({"source": "fixed", "rows": ROWS}, {"workers": 2, "capacity_tokens": 200, "cost": COST})
    env.reset(seed=0)
    picture = make_frame(env._backend, env.decision, *env._last)
    assert (picture.last, picture.worker, picture.fleet.routed, picture.done) == (None, -1, 0, 0)
    assert (picture.hit_frac, picture.p50_s, picture.p95_s) == (None, None, None)


def test_frame__masked_workers_are_down(played):
    decision = replace(played.decision, mask=np.array([True, False]))
    assert make_frame(played._backend, decision, *played._last).down.tolist() == [False, True]
    assert make_frame(played._backend, None, decision, 0).down.tolist() == [False, True]


def test_cache_parts__are_prefixes_then_small_ones_then_what_requests_hold():
    picture = frame([[0, 3, 20], [0, 7, 4], [0, 8, 4], [0, 9, 30], [1, 3, 100]], [78, 100], [0, 0], [0, 0])
    assert list(picture.cache_parts(0, 10)) == [Part(0, 2, 3), Part(2, 5, 9), Part(5, 6, OTHER), Part(6, 8, PRIVATE)]
    assert list(picture.cache_parts(1, 10)) == [Part(0, 10, 3)]


def test_cache_parts__fill_the_bar_without_gaps_and_never_more():
    rng = np.random.default_rng(0)
    for _ in range(200):
        sizes = rng.multinomial(rng.integers(1, 100), np.ones(9) / 9)
        rows = [[0, kind, size] for kind, size in enumerate(sizes) if size]
        used = int(rng.integers(sizes.sum(), 101))
        width = int(rng.integers(1, 60))
        parts = list(frame(rows, [used], [0], [0]).cache_parts(0, width))
        assert [part.start for part in parts] == [0, *[part.stop for part in parts]][:-1]
        assert parts == [] or abs(parts[-1].stop - used * width / 100) <= 0.5


def test_cache_parts__of_an_empty_cache_are_none():
    assert list(frame([], [0], [0], [0]).cache_parts(0, 50)) == []


@pytest.mark.parametrize(
    ("running", "queued", "scale"), [(0, 0, 16), (10, 6, 16), (10, 7, 32), (64, 0, 64), (65, 0, 128)]
)
def test_load_scale__is_a_power_of_two_that_fits(running, queued, scale):
    assert frame([], [0, 0], [running, 0], [queued, 1]).load_scale == scale
