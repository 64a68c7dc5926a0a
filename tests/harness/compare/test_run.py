from __future__ import annotations

import numpy as np
import pytest

from kvgym.config.cluster import ClusterConfig
from kvgym.errors import ConfigError
from kvgym.harness.compare.cell import Cell
from kvgym.harness.compare.run import make_controller, run
from kvgym.types import DONE
from kvgym.workloads.fixed import Fixed
from kvgym.workloads.gsp import GSP


class Watcher:
    """Sends everything to worker 0 and keeps what it was shown."""

    shown: list[tuple[float, np.ndarray]] = []  # noqa: RUF012 - read back after the run made its own object

    def reset(self, spec, seed):
        Watcher.shown, self.finished = [], np.zeros(0)
        Watcher.seed, Watcher.workers = seed, spec.workers

    def observe(self, records):
        self.finished = records.copy()

    def act(self, decision):
        Watcher.shown.append((decision.time_s, self.finished))
        self.finished = np.zeros(0)
        return 0


def cell(**changes):
    source = GSP(groups=6, prompts_per_group=4, lens=(64, 128), rate_rps=20.0)
    values = {
        "workload": "gsp",
        "source": source,
        "cluster": "two",
        "fleet": ClusterConfig(workers=2, capacity_tokens=1000),
        "routing": "watcher",
        "controller": "watcher",
        "options": {},
        "eviction": "lru",
        "published": {},
    }
    return Cell(**{**values, **changes})


BURST = Fixed(({"path": [["a", 1000]]}, {"path": [["b", 1000]]}, {"path": [["c", 1000]], "arrival_s": 9.0}))
ONE_AT_A_TIME = ClusterConfig(
    workers=2, capacity_tokens=5000, cost={"model": "analytic", "cached_ms": 0.0, "miss_ms": 1.0},
    one_at_a_time=True, request_overhead_s=0.0, step_overhead_s=0.0,
)  # fmt: skip
"""A prompt of 1,000 tokens takes one second."""


class Prophet(Watcher):
    """Predicts ten seconds and as many as it has made decisions; the last decision has none."""

    def act(self, decision):
        worker = super().act(decision)
        self.predicted_s = 10.0 + len(Watcher.shown) if len(Watcher.shown) < 3 else -1.0
        return worker


class WatcherTable:
    """A name table that always gives the watcher, or another class."""

    def __init__(self, cls=Watcher):
        self.cls = cls

    def load(self, name):
        return self.cls


def test_run__every_request_is_routed_once_and_answered():
    result = run(cell(controller="round_robin"), seed=0)
    assert result.decisions == len(result.records) == 24
    assert sorted(result.records["request"]) == list(range(24))
    assert (result.records["status"] == DONE).all()
    assert 0 < result.decision_s < result.wall_s
    assert np.bincount(result.records["worker"]).tolist() == [12, 12]


def test_run__the_controller_sees_completions_before_the_next_decision(monkeypatch):
    monkeypatch.setattr("kvgym.config.contracts.table", lambda family: WatcherTable())
    result = run(cell(), seed=7)
    seen = np.concatenate([finished for _, finished in Watcher.shown if len(finished)])
    assert (Watcher.seed, Watcher.workers) == (7, 2)
    assert (result.records["worker"] == 0).all()
    # shown in order of completion, each once, and never before it has happened
    assert seen["request"].tolist() == result.records["request"][: len(seen)].tolist()
    assert all((finished["finish_s"] <= time_s).all() for time_s, finished in Watcher.shown if len(finished))
    last_s = Watcher.shown[-1][0]
    assert len(seen) == (result.records["finish_s"] <= last_s).sum() > 0


def test_run__the_same_seed_gives_the_same_records():
    first, second = (run(cell(controller="random"), seed=3) for _ in range(2))
    assert first.records.tobytes() == second.records.tobytes()
    assert first.totals == second.totals
    assert run(cell(controller="random"), seed=4).records.tobytes() != first.records.tobytes()


def test_make_controller__options_reach_the_constructor():
    made = make_controller(cell(controller="cache_aware", options={"cache_threshold": 0.49}))
    assert made.cache_threshold == 0.49
    with pytest.raises(ConfigError, match=r"'cache_aware' does not take \{'threshold': 0\.49\}"):
        make_controller(cell(controller="cache_aware", options={"threshold": 0.49}))


def test_run__predictions_are_logged_per_decision(monkeypatch):
    monkeypatch.setattr("kvgym.config.contracts.table", lambda family: WatcherTable(Prophet))
    records = run(cell(source=BURST, fleet=ONE_AT_A_TIME), seed=0).records
    assert dict(zip(records["request"].tolist(), records["predicted_s"].tolist(), strict=True)) == {0: 11, 1: 12, 2: -1}


def test_run__a_controller_without_predictions_logs_none():
    assert set(run(cell(controller="round_robin"), seed=0).records["predicted_s"]) == {-1.0}
    assert (run(cell(controller="lbgr"), seed=0).records["predicted_s"] > 0).all()


def test_charge__decisions_follow_each_other_and_delay_the_requests(monkeypatch):
    """A quarter of a second each, all to worker 0: served from 0.25, 1.25 (decided at 0.5) and 9.25 on."""
    monkeypatch.setattr("kvgym.config.contracts.table", lambda family: WatcherTable())
    records = run(cell(source=BURST, fleet=ONE_AT_A_TIME, charge_decision_time=0.25), seed=0).records
    assert records["admitted_s"].tolist() == [0.25, 1.25, 9.25]
    assert records["finish_s"].tolist() == [1.25, 2.25, 10.25]
    assert records["arrival_s"].tolist() == [0.0, 0.0, 9.0]


def test_charge__two_workers_still_have_one_router():
    records = run(
        cell(source=BURST, fleet=ONE_AT_A_TIME, controller="round_robin", charge_decision_time=0.25), 0
    ).records
    assert records["finish_s"].tolist() == [1.25, 1.5, 10.25]


def test_charge__measured_takes_wall_time(monkeypatch):
    ticks = iter(np.arange(0.0, 1000.0, 0.5))  # each look at the clock is half a second later
    monkeypatch.setattr("kvgym.harness.compare.run.time.perf_counter", lambda: next(ticks))
    records = run(cell(source=BURST, fleet=ONE_AT_A_TIME, controller="round_robin", charge_decision_time="measured"), 0)
    assert records.records["finish_s"].tolist() == [1.5, 2.0, 10.5]


def test_charge__arrivals_and_the_default_stay():
    plain, charged = (run(cell(controller="random", charge_decision_time=s), seed=1).records for s in (0.0, 0.001))
    by_request = [np.sort(records, order="request") for records in (plain, charged)]
    assert (by_request[0]["arrival_s"] == by_request[1]["arrival_s"]).all()
    assert (by_request[0]["admitted_s"] < by_request[1]["admitted_s"]).all()


def test_run__counts_answers_that_the_kv_capacity_cuts():
    """Beside 1,000 of prompt the pool of 1,100 holds 98 answer tokens more by SGLang's rule; the others fit."""
    rows = [
        {"path": [[name, 1000]], "output_tokens": tokens, "arrival_s": time_s}
        for name, tokens, time_s in (("a", 200, 0.0), ("b", 50, 100.0), ("c", 150, 200.0))
    ]
    fleet = ClusterConfig(workers=1, capacity_tokens=1100)
    result = run(cell(source=Fixed(tuple(rows)), fleet=fleet, controller="round_robin"), seed=0)
    made = result.records["output_tokens"].tolist()
    assert made[1] == 50 and made[0] == made[2] < 100
    assert (result.totals["capped"], result.totals["capped_tokens"]) == (2, 350 - 2 * made[0])
    roomy = run(cell(source=Fixed(tuple(rows)), controller="round_robin", fleet=ClusterConfig(workers=1)), seed=0)
    assert (roomy.totals["capped"], roomy.totals["capped_tokens"]) == (0, 0)
