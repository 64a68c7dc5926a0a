from __future__ import annotations

import numpy as np
import pytest

from kvgym.backends.simulated import SimulatedBackend
from kvgym.config.cluster import ClusterConfig
from kvgym.config.schedule import FleetEvent
from kvgym.config.signals import SignalsConfig
from kvgym.workloads.base import Workload
from kvgym.workloads.fixed import Fixed
from kvgym.workloads.gsp import GSP

FLEET = ClusterConfig(workers=2, capacity_tokens=(900, 2000))
NAMES = ("running", "queued", "kv_used_tokens")


@pytest.fixture(scope="module")
def busy() -> Workload:
    return GSP(groups=20, prompts_per_group=10, lens=(64, 127), rate_rps=40.0).generate(1)


def watch(workload: Workload, signals: SignalsConfig, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Return decision times and metrics, shape (decisions, 3, workers); requests alternate between the workers."""
    backend = SimulatedBackend(workload, FLEET, "lru", seed, signals)
    times, seen = [], []
    while (decision := backend.run_to_decision()) is not None:
        times.append(decision.time_s)
        seen.append([getattr(decision, name).tolist() for name in NAMES])
        assert decision.inflight.tolist() == backend.engine.cache.workers["inflight"].tolist()
        backend.apply(decision.request % 2)
    return np.array(times), np.array(seen)


def test_scrapes__each_decision_sees_the_last_delivered_one(busy):
    """With a period far below the gaps between events, scrapes are the truth."""
    _, fresh = watch(busy, SignalsConfig())
    _, scraped = watch(busy, SignalsConfig(scrape_s=0.001))
    # at most a millisecond old: the same, but where something happened within that millisecond
    assert (scraped == fresh).all(axis=(1, 2)).mean() > 0.9
    assert fresh[:, 1].max() > 1


def test_scrapes__show_a_hand_computed_past():
    """One request at 0 (a prefill of 10 s, then decoding); probes to worker 1 look at worker 0 every 2.5 s."""
    cost = {"model": "linear", "p0_ms": 10_000.0, "d0_ms": 1000.0}
    rows = [{"path": [["a", 10]], "output_tokens": 30}, {"path": [["b", 10]], "output_tokens": 30}]
    rows += [{"path": [["p", 1]], "arrival_s": 2.5 * i} for i in range(1, 9)]
    workload = Fixed(tuple(rows)).generate(0)
    fleet = ClusterConfig(
        workers=2, capacity_tokens=1000, cost=cost, max_prefill_tokens=10, chunk_tokens=10, request_overhead_s=0.0,
        step_overhead_s=0.0,
    )  # fmt: skip
    seen = {}
    for name, signals in {
        "fresh": SignalsConfig(),
        "period": SignalsConfig(scrape_s=5.0),
        "late": SignalsConfig(scrape_s=5.0, scrape_delay_s=2.5),
        "two on the way": SignalsConfig(scrape_s=5.0, scrape_delay_s=10.0),
        "lost": SignalsConfig(scrape_s=5.0, scrape_loss=1.0),
    }.items():
        backend, queued = SimulatedBackend(workload, fleet, "lru", 0, signals), []
        while (decision := backend.run_to_decision()) is not None:
            queued.append(int(decision.queued[0]))
            backend.apply(int(decision.request >= 2))
        seen[name] = queued[2:]
    # the second prompt waits until the first prefill ends at 10 s; decisions at 2.5, 5, 7.5, ..., 20 s
    assert seen["fresh"] == [1, 1, 1, 1, 0, 0, 0, 0]  # requests arrive before workers schedule
    assert seen["period"] == [0, 1, 1, 1, 1, 0, 0, 0]  # the scrape at 10 s comes before the batch
    assert seen["late"] == [0, 0, 1, 1, 1, 1, 0, 0]
    assert seen["two on the way"] == [0, 0, 0, 0, 0, 1, 1, 1]
    assert seen["lost"] == [0] * 8


def test_loss__keeps_what_was_known_per_worker_and_follows_the_seed(busy):
    _, whole = watch(busy, SignalsConfig(scrape_s=0.5))
    _, lossy = watch(busy, SignalsConfig(scrape_s=0.5, scrape_loss=0.5))
    assert (watch(busy, SignalsConfig(scrape_s=0.5, scrape_loss=0.5))[1] == lossy).all()
    assert (watch(busy, SignalsConfig(scrape_s=0.5, scrape_loss=0.5), seed=1)[1] != lossy).any()
    changes = [(np.diff(seen, axis=0) != 0).any(axis=1).sum(axis=0) for seen in (whole, lossy)]
    assert (changes[1] < 0.75 * changes[0]).all() and (changes[1] > 0.25 * changes[0]).all()
    # each worker's scrape is lost by itself
    moved = (np.diff(lossy, axis=0) != 0).any(axis=1)
    assert (moved[:, 0] & ~moved[:, 1]).any() and (moved[:, 1] & ~moved[:, 0]).any()


def test_scrapes__change_nothing_but_what_is_seen(busy):
    records = []
    for signals in (SignalsConfig(), SignalsConfig("events", scrape_s=0.25, scrape_loss=0.5)):
        backend = SimulatedBackend(busy, FLEET, "rlt", 0, signals)
        while (decision := backend.run_to_decision()) is not None:
            backend.apply(decision.request % 2)
        records.append(backend.records())
    assert (records[0] == records[1]).all()


def test_metrics__absent_are_none(busy):
    decision = SimulatedBackend(busy, FLEET, "lru", 0, SignalsConfig(metrics=False, scrape_s=5.0)).run_to_decision()
    assert [getattr(decision, name) for name in NAMES] == [None] * 3
    assert decision.kv_capacity_tokens.tolist() == [900, 2000] and decision.inflight.tolist() == [0, 0]


def test_scrapes__a_dead_worker_does_not_answer():
    """Worker 0 has two requests when it dies at 3 s; routers see that until it is back and scraped again."""
    cost = {"model": "linear", "p0_ms": 100.0, "d0_ms": 1000.0}
    rows = [{"path": [[i, 10]], "output_tokens": 30} for i in range(2)]
    rows += [{"path": [["p", 1]], "arrival_s": i + 0.5} for i in range(1, 9)]
    schedule = (FleetEvent(3.0, 0, "fail"), FleetEvent(7.0, 0, "recover"))
    fleet = ClusterConfig(
        workers=2, capacity_tokens=1000, cost=cost, schedule=schedule, detect_s=1.0, retries=0, request_overhead_s=0.0
    )
    backend = SimulatedBackend(Fixed(tuple(rows)).generate(0), fleet, "lru", 0, SignalsConfig(scrape_s=1.0))
    seen = []
    while (decision := backend.run_to_decision()) is not None:
        seen.append((int(decision.running[0]), bool(decision.mask[0])))
        backend.apply(int(decision.request >= 2))
    # decisions at 1.5, 2.5, ..., 8.5 s; noticed at 4 s, back at 7 s, scraped before that at 7 s and again at 8 s
    up, down, back = (2, True), (2, False), [(2, True), (0, True)]
    assert seen[2:] == [up, up, up, down, down, down, *back]
