from __future__ import annotations

import numpy as np
import pytest

from kvgym.cluster import ClusterConfig
from kvgym.errors import ConfigError
from kvgym.harness.grid import Cell
from kvgym.harness.run import make_controller, run
from kvgym.types import DONE
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


class WatcherTable:
    """A name table that always gives the watcher."""

    def load(self, name):
        return Watcher


def test_run__every_request_is_routed_once_and_answered():
    result = run(cell(controller="round_robin"), seed=0)
    assert result.decisions == len(result.records) == 24
    assert sorted(result.records["request"]) == list(range(24))
    assert (result.records["status"] == DONE).all()
    assert 0 < result.decision_s < result.wall_s
    assert np.bincount(result.records["worker"]).tolist() == [12, 12]


def test_run__the_controller_sees_completions_before_the_next_decision(monkeypatch):
    monkeypatch.setattr("kvgym.harness.run.table", lambda family: WatcherTable())
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
