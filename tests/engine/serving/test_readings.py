from __future__ import annotations

import pytest

from kvgym.backends.simulated import SimulatedBackend
from kvgym.config.cluster import ClusterConfig
from kvgym.engine.serving.readings import HIT, INFLIGHT, INFLIGHT_TOKENS, KV_CAPACITY, KV_USED, QUEUED, RUNNING, SIGNALS
from kvgym.errors import SimulationError
from kvgym.workloads.gsp import GSP

FLEET = ClusterConfig(workers=3, capacity_tokens=(600, 900, 2000), page_size=4)


def start(rate_rps: float, routed: int) -> SimulatedBackend:
    """Return a backend with thirty requests, the first `routed` of them sent in turn, the next one waiting."""
    workload = GSP(groups=6, prompts_per_group=5, lens=(64, 127), rate_rps=rate_rps).generate(1, page_size=4)
    backend = SimulatedBackend(workload, FLEET, "lru", seed=0)
    for i in range(routed):
        backend.run_to_decision()
        backend.apply(i % 3)
    backend.run_to_decision()
    return backend


@pytest.fixture
def backend() -> SimulatedBackend:
    """A busy fleet in mid-episode."""
    return start(rate_rps=200.0, routed=15)


def test_signals__are_the_workers_own_counts(backend):
    engine = backend.engine
    signals, most = engine.signals(exact=False)
    workers, prompt = engine.cache.workers, engine.sim.requests["prompt_tokens"][engine.pending]
    assert signals.shape == (SIGNALS, 3)
    assert signals[HIT].tolist() == [0, 0, 0]
    for row, name in ((INFLIGHT, "inflight"), (INFLIGHT_TOKENS, "inflight_tokens"), (RUNNING, "running"),
                      (QUEUED, "queued"), (KV_CAPACITY, "capacity")):  # fmt: skip
        assert signals[row].tolist() == workers[name].tolist()
    assert signals[KV_USED].tolist() == (workers["evictable"] + workers["protected"] + workers["private"]).tolist()
    assert signals[INFLIGHT].sum() == 15 - len(engine.records()) > 0
    assert most == (prompt - 1) // 4 * 4


def test_signals__exact_hit_is_what_the_admission_finds():
    backend = start(rate_rps=1.0, routed=0)
    expected = {}
    while (decision := backend.run_to_decision()) is not None:
        signals, most = backend.engine.signals(exact=True)
        assert signals[HIT].max() <= most
        worker = decision.request // 2 % 3
        if signals[INFLIGHT, worker] == 0:  # it admits at once, before its cache changes
            expected[decision.request] = int(signals[HIT, worker])
        backend.apply(worker)
    found = {int(row["request"]): int(row["hit_tokens"]) for row in backend.records()}
    assert len(expected) > 20
    assert len(set(expected.values())) >= 3
    assert {request: found[request] for request in expected} == expected


def test_signals__need_a_waiting_request(backend):
    backend.apply(0)
    with pytest.raises(SimulationError, match="no request waits"):
        backend.engine.signals(exact=True)


def test_records__hold_each_request_as_it_ended(backend):
    while backend.run_to_decision() is not None:
        backend.apply(0)
    records, sim = backend.records(), backend.engine.sim
    ids = records["request"]
    assert sorted(ids) == list(range(30))
    for name in ("session", "turn", "prompt_tokens"):
        assert records[name].tolist() == sim.requests[name][ids].tolist()
    for name, field in (("worker", "worker"), ("status", "status"), ("hit_tokens", "hit"), ("output_tokens", "out"),
                        ("retractions", "retractions"), ("arrival_s", "release_s"), ("admitted_s", "admitted_s"),
                        ("first_token_s", "first_s"), ("finish_s", "finish_s")):  # fmt: skip
        assert records[name].tolist() == sim.live[field][ids].tolist(), name
