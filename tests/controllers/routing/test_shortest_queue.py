from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from controllers.routing.shortest_queue import ShortestQueue
from kvgym.backends.simulated import SimulatedBackend
from kvgym.config.cluster import ClusterConfig
from kvgym.config.signals import SignalsConfig
from kvgym.errors import ConfigError
from kvgym.workloads.gsp import GSP


def test_shortest_queue__takes_the_fewest_in_flight(start, ask):
    router = start(ShortestQueue(), 4)
    assert router.act(ask(1, [3, 2, 1, 4])) == 2
    assert router.act(ask(1, [3, 2, 1, 4], mask=[True, True, False, True])) == 1


def test_shortest_queue__ties_are_drawn(start, ask):
    router = start(ShortestQueue(), 4)
    counts = np.bincount([router.act(ask(1, [5, 1, 1, 1])) for _ in range(3000)])
    assert counts[0] == 0
    assert abs(counts[1:] - 1000).max() < 120


def test_signal__queued_is_what_the_workers_report(start, ask):
    router = start(ShortestQueue(signal="queued"), 3)
    decision = ask(1, [0, 5, 9])
    assert router.act(dataclasses.replace(decision, queued=np.array([4, 2, 1]))) == 2
    assert router.act(dataclasses.replace(decision, queued=None)) == 0


def test_signal__unknown(fleet):
    with pytest.raises(ConfigError, match="signal must be one of 'inflight', 'queued', got 'queue'"):
        ShortestQueue(signal="queue")


@pytest.mark.parametrize("scrape_s", [1.0, 5.0])
def test_signal__own_counts_beat_stale_queues(scrape_s):
    """Everything that arrives between two scrapes goes to the queue that was shortest at the last one."""
    workload, mean_s = GSP(groups=40, prompts_per_group=8, rate_rps=10.0).generate(0), {}
    for signal in ("inflight", "queued"):
        backend = SimulatedBackend(workload, ClusterConfig(), "lru", 0, SignalsConfig(scrape_s=scrape_s))
        router = ShortestQueue(signal=signal)
        router.reset(backend.spec, 0)
        while (decision := backend.run_to_decision()) is not None:
            backend.apply(router.act(decision))
        records = backend.records()
        mean_s[signal] = (records["finish_s"] - records["arrival_s"]).mean()
    assert mean_s["inflight"] < 0.8 * mean_s["queued"]
