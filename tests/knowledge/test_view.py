from __future__ import annotations

import copy
import pickle
from typing import Any

import numpy as np
import pytest

from controllers.eviction import EVICTION
from kvgym.backends.simulated import SimulatedBackend
from kvgym.config.cluster import ClusterConfig
from kvgym.config.schedule import FleetEvent
from kvgym.config.signals import SignalsConfig
from kvgym.forest.forest import Forest
from kvgym.knowledge.view import CacheKnowledge, routers_of
from kvgym.types import KV_EVENT, STORED
from kvgym.workloads.base import Workload
from kvgym.workloads.fixed import Fixed
from kvgym.workloads.gsp import GSP


def sessions(page_size: int) -> Workload:
    """Prompts over five shared prefixes, and second turns with the answers in them; more than the caches hold."""
    rows: list[dict[str, Any]] = []
    for i in range(120):
        shared, answer = [[i % 5, 30 + 7 * (i % 5)], [f"q{i}", 20 + i % 13]], [f"a{i}", 5 + i % 30]
        first = {"path": shared, "session": i, "output_tokens": answer[1], "answer": answer[0], "arrival_s": i * 0.15}
        then = {"path": [*shared, answer, [f"m{i}", 9]], "session": i, "output_tokens": 3, "think_s": 0.5}
        rows += [first, then]
    return Fixed(tuple(rows)).generate(0, page_size)


def decisions(
    workload: Workload, eviction: str, signals: SignalsConfig, page_size: int = 1, **fleet_fields: Any
) -> list[list[int]]:
    """Return `hit_tokens` of all decisions, spread over the three workers, or those of them that are up."""
    sizes = {"workers": 3, "capacity_tokens": (480, 640, 960), "page_size": page_size, "chunk_tokens": 64}
    fleet = ClusterConfig(**{**sizes, **fleet_fields})
    backend = SimulatedBackend(workload, fleet, eviction, 1, signals)
    seen = []
    while (decision := backend.run_to_decision()) is not None:
        assert decision.hit_tokens is not None
        seen.append(decision.hit_tokens.tolist())
        worker = decision.request * 5 // 2 % 3
        backend.apply(worker if decision.mask[worker] else int(np.argmax(decision.mask)))
    assert min(backend.stats()["evicted_tokens"]) > 0
    return seen


@pytest.mark.parametrize("page_size", [1, 16])
@pytest.mark.parametrize("eviction", list(EVICTION))
def test_events__without_delay_and_loss_tell_what_the_caches_hold(eviction: str, page_size: int) -> None:
    workload = sessions(page_size)
    exact = decisions(workload, eviction, SignalsConfig("exact"), page_size)
    assert decisions(workload, eviction, SignalsConfig("events"), page_size) == exact
    assert len({tuple(hits) for hits in exact}) > 20


FAILURES = (FleetEvent(4.0, 1, "fail"), FleetEvent(9.0, 1, "recover"), FleetEvent(13.0, 2, "fail"))


@pytest.mark.parametrize("eviction", ["lru", "rlt"])
def test_events__tell_what_the_caches_hold_when_workers_fail(eviction: str) -> None:
    faults = {"schedule": FAILURES, "detect_s": 1.0, "retries": 3}
    exact = decisions(sessions(1), eviction, SignalsConfig("exact"), **faults)
    assert decisions(sessions(1), eviction, SignalsConfig("events"), **faults) == exact
    assert decisions(sessions(1), eviction, SignalsConfig("exact")) != exact


def test_events__of_a_former_life_do_not_come_back_late() -> None:
    """Worker 0 dies after one prompt and is back at once, empty; what it had stored is heard of two seconds later."""
    rows = tuple({"path": [["a", 10]], "arrival_s": time_s} for time_s in (0.0, 3.0, 4.0, 6.0))
    schedule = (FleetEvent(3.5, 0, "fail"), FleetEvent(3.6, 0, "recover"))
    fleet = ClusterConfig(workers=2, capacity_tokens=1000, schedule=schedule, retries=0)
    seen = []
    for delay_s in (0.0, 3.0):
        signals = SignalsConfig("events", event_delay_s=delay_s)
        backend, hits = SimulatedBackend(Fixed(rows).generate(0), fleet, "lru", 1, signals), []
        while (decision := backend.run_to_decision()) is not None:
            assert decision.hit_tokens is not None
            hits.append(int(decision.hit_tokens[0]))
            backend.apply(int(decision.request > 0))
        seen.append(hits)
    assert seen == [[0, 9, 0, 0], [0, 0, 0, 0]]


def test_events__late_ones_tell_the_past() -> None:
    """A cache that is used once a second is seen as it was before the last use if events take more than a second."""
    rows = tuple({"path": [[i % 2, 10], [i, 5]], "arrival_s": float(i)} for i in range(8))
    workload, fleet = Fixed(rows).generate(0), ClusterConfig(workers=1, capacity_tokens=1000, request_overhead_s=0.0)
    seen = []
    for delay_s in (0.0, 1.5, 3.5):
        signals = SignalsConfig("events", event_delay_s=delay_s)
        backend, hits = SimulatedBackend(workload, fleet, "lru", 1, signals), []
        while (decision := backend.run_to_decision()) is not None:
            assert decision.hit_tokens is not None
            hits.append(int(decision.hit_tokens[0]))
            backend.apply(0)
        seen.append(hits)
    assert seen == [[0, 0, *[10] * 6], [0, 0, 10, *[10] * 5], [0, 0, 0, 0, *[10] * 4]]


def test_events__losses_depend_on_the_seed_alone() -> None:
    workload = sessions(1)
    lossy = SignalsConfig("events", event_loss=0.3, event_delay_s=0.2)
    first = decisions(workload, "lru", lossy)
    assert first == decisions(workload, "lru", lossy)
    assert first != decisions(workload, "lru", SignalsConfig("events", event_delay_s=0.2))


def test_index_tokens__bound_what_a_router_remembers() -> None:
    """Eight documents of 100 tokens in turn: an LRU index of fewer than 800 has forgotten each when it comes again."""
    rows = tuple({"path": [[i % 8, 100]], "arrival_s": float(i)} for i in range(40))
    workload = Fixed(rows).generate(0)

    def remembered(capacity: int, tokens: int | None) -> int:
        fleet = ClusterConfig(workers=1, capacity_tokens=capacity)
        backend, hits = SimulatedBackend(workload, fleet, "lru", 1, SignalsConfig(index_tokens=tokens)), 0
        while (decision := backend.run_to_decision()) is not None:
            assert decision.hit_tokens is not None
            hits += int(decision.hit_tokens[0] > 0)
            backend.apply(0)
        return hits

    assert [remembered(1000, None), remembered(1000, 300), remembered(700, None), remembered(700, 900)] == [
        32,
        0,
        0,
        32,
    ]


@pytest.mark.parametrize("observability", ["router", "events"])
def test_restart__empties_the_index_of_that_worker(observability: str) -> None:
    forest = Forest()
    node = forest.insert([1, 2, 3])
    known = CacheKnowledge(SignalsConfig(observability, routers=2), forest, (100, 100), seed=0)
    events = np.array([(0.0, w, 0, STORED, node, 0, 3) for w in (0, 1)], KV_EVENT)
    known.hear(events, 0.0)
    for worker in (0, 1):
        known.sent(1, worker, node, 0.0)
    assert known.match_tokens(1, node).tolist() == [3, 3]
    known.see(np.array([0, 1]))
    assert known.match_tokens(1, node).tolist() == [3, 0]
    known.sent(1, 1, node, 1.0)
    known.see(np.array([0, 1]))
    assert known.match_tokens(1, node)[1] == (3 if observability == "router" else 0)


def test_routers__each_remembers_and_counts_only_its_own() -> None:
    rows = tuple({"path": [["same", 50]], "session": i, "arrival_s": 0.0} for i in range(12))
    workload, fleet = Fixed(rows).generate(0), ClusterConfig(workers=2, capacity_tokens=1000)
    backend = SimulatedBackend(workload, fleet, "lru", 1, SignalsConfig(routers=3))
    sent = [0, 0, 0]
    routers = []
    while (decision := backend.run_to_decision()) is not None:
        k = decision.router
        assert decision.inflight.tolist() == [sent[k], 0]
        assert decision.inflight_tokens.tolist() == [50 * sent[k], 0]
        assert decision.hit_tokens is not None and (decision.hit_tokens[0] > 0) == (sent[k] > 0)
        backend.apply(0)
        sent[k] += 1
        routers.append(k)
    assert sorted(set(routers)) == [0, 1, 2]
    engine = backend.engine
    assert engine.sim.sent.sum() == 0 and engine.cache.workers["inflight"].sum() == 0


def test_routers_of__spreads_sessions_or_requests_evenly() -> None:
    workload = sessions(1)
    by_session = routers_of(workload, SignalsConfig(routers=4))
    pairs = {(int(s), int(k)) for s, k in zip(workload.requests["session"], by_session, strict=True)}
    assert len(pairs) == len(set(workload.requests["session"]))
    many = GSP().generate(0)
    for by in ("session", "request"):
        counts = np.bincount(routers_of(many, SignalsConfig(routers=4, router_by=by)), minlength=4)
        assert counts.min() > 0.9 * len(many.requests) / 4
    split = routers_of(workload, SignalsConfig(routers=4, router_by="request"))
    assert len({(int(s), int(k)) for s, k in zip(workload.requests["session"], split, strict=True)}) > 130


SEEN = (
    SignalsConfig("events", event_delay_s=0.3, event_loss=0.2, scrape_s=0.5, scrape_delay_s=0.7, scrape_loss=0.3),
    SignalsConfig(routers=3, scrape_s=0.5, index_tokens=500),
    SignalsConfig("exact", metrics=False, routers=2, router_by="request"),
)


def future(backend: SimulatedBackend) -> list[Any]:
    seen: list[Any] = []
    while (decision := backend.run_to_decision()) is not None:
        arrays = (decision.hit_tokens, decision.inflight, decision.queued, decision.running, decision.kv_used_tokens)
        seen.append([decision.router, *(None if a is None else a.tolist() for a in arrays)])
        backend.apply(decision.request % 3)
    return seen


@pytest.mark.parametrize("signals", SEEN, ids=["events", "routers", "blind"])
def test_clones__see_the_same_from_mid_episode_on(signals: SignalsConfig) -> None:
    backend = SimulatedBackend(sessions(1), ClusterConfig(workers=3, capacity_tokens=640), "rlt", 1, signals)
    for _ in range(100):
        decision = backend.run_to_decision()
        assert decision is not None
        backend.apply(decision.request % 3)
    clones = [backend.fork(), pickle.loads(pickle.dumps(backend)), copy.deepcopy(backend)]
    expected = future(backend)
    assert len(expected) == 140
    for clone in clones:
        assert future(clone) == expected
        assert (clone.records() == backend.records()).all()
