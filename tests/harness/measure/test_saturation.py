from __future__ import annotations

import numpy as np
import pytest

from kvgym.config.cluster import ClusterConfig
from kvgym.harness.compare.cell import Cell
from kvgym.harness.compare.run import run
from kvgym.harness.measure.saturation import backlog_growth
from kvgym.types import RECORD
from kvgym.workloads.gsp import GSP


def episode(arrival_s, latency_s, turn=0):
    records = np.zeros(len(arrival_s), RECORD)
    records["arrival_s"], records["finish_s"], records["turn"] = arrival_s, arrival_s + latency_s, turn
    return records


def growth_of(routing, rate_rps, seed=0, prompts=32, eviction="lru"):
    source, fleet = GSP(rate_rps=rate_rps, prompts_per_group=prompts), ClusterConfig(engine="sglang-0.4.6")
    cell = Cell("gsp", source, "l40x4", fleet, routing, routing, {}, eviction, {})
    return backlog_growth(run(cell, seed).records, 0.0)


def test_growth__is_the_share_of_arrivals_that_is_not_served():
    """Two requests a second come, 1.5 are served: a quarter stays behind. N grows by 0.5 a second in every slice."""
    arrival_s = np.arange(0, 1001) / 2
    served_s = np.arange(0, 1001) / 1.5
    growth, saturated = backlog_growth(episode(arrival_s, served_s - arrival_s), 0.0)
    assert growth == pytest.approx(0.25, abs=0.002)
    assert saturated == 1.0


def test_growth__of_a_steady_backlog_is_none_however_large():
    arrival_s = np.arange(0, 1001) / 2
    records = episode(arrival_s, np.full(1001, 400.0))
    assert backlog_growth(records, 0.0)[1] == 1.0  # while it fills up
    growth, saturated = backlog_growth(records, 400.0)
    assert growth == pytest.approx(0.0, abs=1e-3)
    assert saturated == 0.0


def test_growth__one_burst_is_not_a_trend():
    rng = np.random.default_rng(0)
    arrival_s = np.sort(np.append(rng.uniform(0, 1000, 900), rng.uniform(850, 860, 100)))
    latency_s = np.where(arrival_s > 850, 20.0, 1.0)
    growth, saturated = backlog_growth(episode(arrival_s, latency_s), 0.0)
    assert growth > 0
    assert saturated == 0.0


def test_window__ends_with_the_last_new_session():
    """Later turns that trickle in while the backlog shrinks do not hide that it grew."""
    arrival_s = np.arange(0, 1001) / 2
    grown = episode(arrival_s, np.arange(0, 1001) / 1.5 - arrival_s)
    late = episode(np.linspace(600, 5000, 400), np.full(400, 1.0), turn=1)
    assert backlog_growth(np.concatenate((grown, late)), 0.0) == pytest.approx(backlog_growth(grown, 0.0))


@pytest.mark.parametrize(
    "records",
    [episode(np.arange(99) / 1.0, 50.0), episode(np.zeros(500), np.arange(500.0)), episode(np.zeros(0), 0.0)],
    ids=["few", "burst", "none"],
)
def test_growth__nothing_is_said_about_few_requests_or_one_burst(records):
    assert backlog_growth(records, 0.0) == (None, None)


def test_default_gsp__overloaded_knee_and_idle():
    """The three cases of the docstring; the knee is decided by the router, not by the rate alone."""
    growth, saturated = growth_of("round_robin", 14.0)
    assert 0.1 < growth < 0.2
    assert saturated == 1.0
    growth, saturated = growth_of("lbgr_release", 12.0, eviction="rlt_release")
    assert abs(growth) < 0.02
    assert saturated == 0.0
    growth, saturated = growth_of("round_robin", 2.0, prompts=8)
    assert abs(growth) < 0.002
    assert saturated == 0.0
