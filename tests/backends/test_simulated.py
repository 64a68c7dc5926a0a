"""The simulated backend: a cluster config becomes an engine, its state becomes decisions, records and counters."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest

from kvgym.backends.simulated import SimulatedBackend, engine_options
from kvgym.config.cluster import ClusterConfig
from kvgym.config.schedule import FleetEvent
from kvgym.config.signals import SignalsConfig
from kvgym.errors import ConfigError, UnknownNameError
from kvgym.workloads.base import Workload
from kvgym.workloads.fixed import Fixed
from kvgym.workloads.gsp import GSP

COST = {"model": "linear", "p0_ms": 1000.0, "p_tok_ms": 250.0, "d0_ms": 500.0}


def row(*path: list[Any], **fields: Any) -> dict[str, Any]:
    return {"path": list(path), **fields}


def small(**cluster: Any) -> ClusterConfig:
    return ClusterConfig(**{"workers": 2, "capacity_tokens": 100, "cost": COST, **cluster})


def turns() -> Workload:
    """Two requests for the same prompt of 10 tokens with an answer of 3, then one that shares 4 tokens."""
    rows = [row(["a", 4], ["b", 6], output_tokens=3, max_new_tokens=5, priority=2), row(["a", 4], ["b", 6])]
    return Fixed((*rows, row(["a", 4], ["c", 3], arrival_s=2.0))).generate(0)


def test_options__come_from_the_cluster() -> None:
    cluster = small(
        page_size=16, capacity_tokens=160, chunk_tokens=64, max_prefill_tokens=128, max_running=7, ignore_eos=False
    )
    options = engine_options(cluster)[0]
    names = ("page", "chunk", "prefill", "max_running", "ignore_eos")
    assert [int(options[name]) for name in names] == [16, 64, 128, 7, 0]
    assert engine_options(small())["p_tok"][0] == 0.25


def test_engine__one_for_each_worker() -> None:
    cluster = small(workers=3, engine=("sglang-0.5.23", "sglang-0.4.6", "sglang-0.5.23-mixed"))
    workers = SimulatedBackend(turns(), cluster, "lru", seed=1).engine.cache.workers
    rules = [workers[name].tolist() for name in ("evict_full", "in_full", "mixed_chunk")]
    assert rules == [[0, 1, 0], [1, 0, 1], [0, 0, 1]]


def test_options__overheads_of_the_cluster_replace_those_of_the_preset() -> None:
    preset = engine_options(small(cost="l40-llama31-8b"))[0]
    assert (preset["request_s"], preset["step_s"]) == (0.02, pytest.approx(0.0056))
    own = engine_options(small(cost="l40-llama31-8b", request_overhead_s=0.0, step_overhead_s=0.25))[0]
    assert (own["request_s"], own["step_s"]) == (0.0, 0.25)


def test_decision__describes_request_and_workers() -> None:
    load = turns()
    backend = SimulatedBackend(load, small(capacity_tokens=(100, 200)), "lru", seed=1, signals=SignalsConfig("exact"))
    assert backend.spec.capacity_tokens == (100, 200) and backend.spec.forest is load.forest
    first = backend.run_to_decision()
    assert first is not None
    assert (first.request, first.prompt_tokens, first.prompt_chars, first.max_new_tokens) == (0, 10, 40, 5)
    assert (first.node, first.priority, first.turn, first.time_s) == (load.requests["prompt_node"][0], 2, 0, 0.0)
    assert list(first.kv_capacity_tokens) == [100, 200] and first.mask.all() and first.hit_tokens is not None
    backend.apply(0)
    second = backend.run_to_decision()
    assert second is not None
    assert [list(x) for x in (second.inflight, second.inflight_tokens, second.queued)] == [[1, 0], [10, 0], [1, 0]]
    backend.apply(0)
    third = backend.run_to_decision()
    assert third is not None and third.time_s == 2.0
    # both prompts are being computed: nothing is in the cache, everything is taken
    assert [list(x) for x in (third.running, third.kv_used_tokens, third.hit_tokens)] == [[0, 0], [20, 0], [0, 0]]
    assert [len(backend.completions()), len(backend.records())] == [0, 0]


@pytest.mark.parametrize(
    ("observability", "hits"), [("exact", [[0, 0], [9, 0], [0, 0]]), ("router", [[0, 0], [9, 0], [9, 0]])]
)
def test_decision__hits_are_real_or_remembered(observability: str, hits: list[list[int]]) -> None:
    """9 of 10 tokens after the first request; then a prompt of 94 throws it out, which a big index does not see."""
    rows = [row(["a", 10]), row(["a", 10], arrival_s=50.0), row(["big", 94], arrival_s=100.0), row(["a", 10])]
    rows[3]["arrival_s"] = 200.0
    signals = SignalsConfig(observability, index_tokens=1000)
    backend = SimulatedBackend(Fixed(tuple(rows)).generate(0), small(), "lru", 1, signals)
    seen = []
    while (decision := backend.run_to_decision()) is not None:
        assert decision.hit_tokens is not None
        seen.append(list(decision.hit_tokens))
        backend.apply(0)
    assert [seen[i] for i in (0, 1, 3)] == hits
    assert list(backend.records()["hit_tokens"]) == [0, 9, 0, 0]


def test_decision__does_not_change_afterwards() -> None:
    """A controller may keep a decision: its arrays are copies, and the mask can't be written."""
    backend = SimulatedBackend(turns(), small(), "lru", seed=1)
    kept = backend.run_to_decision()
    assert kept is not None
    backend.apply(1)
    backend.run_to_decision()
    assert list(kept.inflight) == [0, 0]
    with pytest.raises(ValueError, match="read-only"):
        kept.mask[0] = False


def test_fleet__mask_incarnation_and_network_are_what_the_router_knows() -> None:
    """Worker 1 dies at 4, is noticed at 6 and back at 9: its memory at the router goes with the notice."""
    rows = [row(["a", 10], arrival_s=float(time_s), region=time_s % 2) for time_s in (0, 3, 5, 7, 9)]
    schedule = (FleetEvent(4.0, 1, "fail"), FleetEvent(9.0, 1, "recover"))
    fleet = small(schedule=schedule, detect_s=2.0, retries=0, network_s={"near": 0.0, "far": (0.25, 0.5)})
    backend = SimulatedBackend(Fixed(tuple(rows)).generate(0), fleet, "lru", 1)
    assert backend.spec.network_s == ((0.0, 0.0), (0.25, 0.5))
    seen = []
    while (decision := backend.run_to_decision()) is not None:
        assert decision.hit_tokens is not None and decision.incarnation is not None and decision.network_s is not None
        columns = (decision.mask, decision.incarnation, decision.hit_tokens, decision.network_s)
        seen.append((decision.time_s, *(column.tolist() for column in columns)))
        for column in (decision.mask, decision.incarnation, decision.network_s):
            assert not column.flags.writeable
        backend.apply(1 if decision.mask[1] else 0)
    assert seen == [
        (0.0, [True, True], [0, 0], [0, 0], [0.0, 0.0]),
        (3.0, [True, True], [0, 0], [0, 9], [0.25, 0.5]),
        (5.0, [True, True], [0, 0], [0, 9], [0.25, 0.5]),
        (7.0, [True, False], [0, 1], [0, 0], [0.25, 0.5]),
        (9.0, [True, True], [0, 1], [9, 0], [0.25, 0.5]),
    ]


def test_fleet__nothing_is_said_where_nothing_can_happen() -> None:
    backend = SimulatedBackend(turns(), small(), "lru", 1)
    decision = backend.run_to_decision()
    assert decision is not None and decision.mask.all()
    assert decision.incarnation is None and decision.network_s is None and backend.spec.network_s == ()


def test_regions__are_drawn_for_a_workload_without_and_move_no_arrival(gsp: Workload) -> None:
    one, four = (
        play(SimulatedBackend(gsp, ClusterConfig(workers=3, network_s=network_s), "lru", 1)).records()
        for network_s in (0.1, {name: 0.1 for name in "abcd"})
    )
    assert one.tobytes() == four.tobytes()
    backend = SimulatedBackend(gsp, ClusterConfig(workers=3, network_s={"a": 0.1, "b": 1.0}), "lru", 1)
    records = play(backend).records()
    region = backend.workload.requests["region"][records["request"]]
    assert 0.4 < region.mean() < 0.6 and not gsp.requests["region"].any()
    assert (np.sort(records["arrival_s"]) == np.sort(one["arrival_s"])).all()
    wait_s = records["finish_s"] - records["arrival_s"]
    assert wait_s[region == 1].min() > 2.0 and wait_s[region == 0].min() < 1.0


def test_stats__add_up(gsp: Workload) -> None:
    backend = play(SimulatedBackend(gsp, ClusterConfig(workers=3, capacity_tokens=9000), "rlt", seed=1))
    stats, records = backend.stats(), backend.records()
    assert sum(stats["hit_tokens"]) == records["hit_tokens"].sum()
    assert sum(stats["prompt_tokens"]) == records["prompt_tokens"].sum()
    assert stats["makespan_s"] == records["finish_s"].max()
    assert stats["makespan_load_s"] == max(stats["busy_s"]) <= stats["makespan_s"]
    assert min(stats["evicted_tokens"]) > 0 and min(stats["steps"]) > 0
    progress = backend.progress()
    assert progress.time_s == stats["makespan_s"] and progress.busiest_s == stats["makespan_load_s"]
    assert progress.in_system_s == pytest.approx((records["finish_s"] - records["arrival_s"]).sum())
    assert progress.no_token_s == pytest.approx((records["first_token_s"] - records["arrival_s"]).sum())


def test_speed__and_capacity_may_differ(gsp: Workload) -> None:
    """Twice the speed halves a worker's busy time for the same requests."""
    busy = []
    for speed in (1.0, (1.0, 2.0)):
        backend = play(SimulatedBackend(gsp, ClusterConfig(workers=2, speed=speed), "lru", seed=1), [0, 1])
        busy.append(backend.stats()["busy_s"])
    assert busy[0][0] == busy[1][0]
    assert busy[1][1] < 0.7 * busy[0][1]


@pytest.mark.parametrize("eviction", ["lru", "rlt"])
@pytest.mark.parametrize("observability", ["router", "exact"])
def test_fork__goes_its_own_way(gsp: Workload, eviction: str, observability: str) -> None:
    """Fork and pickle in mid-episode: the same actions give the same records, others leave the original alone."""
    make = ClusterConfig(workers=3, capacity_tokens=9000)
    whole = play(SimulatedBackend(gsp, make, eviction, 1, SignalsConfig(observability))).records()
    backend = SimulatedBackend(gsp, make, eviction, 1, SignalsConfig(observability))
    for _ in range(150):
        decision = backend.run_to_decision()
        assert decision is not None
        backend.apply(decision.request % 3)
    assert backend.run_to_decision() is not None
    same, other, thawed = backend.fork(), backend.fork(), pickle.loads(pickle.dumps(backend))
    play(other, [0])
    assert (play(same).records() == whole).all()
    assert (play(backend).records() == whole).all()
    assert (play(thawed).records() == whole).all()
    assert not (other.records() == whole).all()


def test_seed__moves_only_the_policys_draws(gsp: Workload) -> None:
    def hits(eviction: str, seed: int) -> int:
        backend = SimulatedBackend(gsp, ClusterConfig(workers=1, capacity_tokens=9000), eviction, seed)
        return int(play(backend, [0]).records()["hit_tokens"].sum())

    assert hits("lru", 1) == hits("lru", 2)
    assert hits("rlt", 1) == hits("rlt", 1)
    assert hits("rlt", 1) != hits("rlt", 2)


def test_backend__refuses_unknown_names(gsp: Workload) -> None:
    with pytest.raises(UnknownNameError, match="unknown eviction policy 'lruu'; did you mean 'lru'"):
        SimulatedBackend(gsp, ClusterConfig(), "lruu", 1)


@pytest.fixture(scope="module")
def gsp() -> Workload:
    return GSP(30, 10, lens=(64, 256, 1024), rate_rps=20.0).generate(3)


def play(backend: SimulatedBackend, route: list[int] | None = None) -> SimulatedBackend:
    """Run to the end, request r to route[r mod its length] (default: r mod 3)."""
    route = route or [0, 1, 2]
    while (decision := backend.run_to_decision()) is not None:
        backend.apply(route[decision.request % len(route)])
    return backend


def test_records__are_rows_of_records(gsp: Workload) -> None:
    backend = play(SimulatedBackend(gsp, ClusterConfig(workers=3, capacity_tokens=9000), "lru", 1))
    records = backend.records()
    assert np.array_equal(np.sort(records["request"]), np.arange(len(gsp.requests)))
    assert np.array_equal(records["arrival_s"], gsp.requests["arrival_s"][records["request"]])


def test_vllm__evicts_by_its_own_list() -> None:
    fleet = small(engine="vllm-0.33")
    with pytest.raises(ConfigError, match="lru"):
        SimulatedBackend(turns(), fleet, "rlt", seed=1)
    SimulatedBackend(turns(), small(engine=("vllm-0.33", "sglang-0.5.23")), "rlt", seed=1)


@pytest.mark.parametrize("engine", ["sglang-0.5.23", "vllm-0.13", "vllm-0.33"])
def test_events__foretell_the_hits_of_every_engine(engine: str) -> None:
    """Each prompt finds what KV events without delay or loss say it will, on full caches, one request at a time."""
    load = GSP(groups=6, prompts_per_group=6, lens=(96, 130), output_tokens=20, clients=1)
    cluster = small(engine=engine, page_size=16, capacity_tokens=400)
    backend = SimulatedBackend(load.generate(0, 16), cluster, "lru", seed=1, signals=SignalsConfig("events"))
    foretold = {}
    while (decision := backend.run_to_decision()) is not None:
        assert decision.hit_tokens is not None
        foretold[decision.request] = int(decision.hit_tokens[decision.request % 2])
        backend.apply(decision.request % 2)
    records = backend.records()
    assert {int(row["request"]): int(row["hit_tokens"]) for row in records} == foretold
    assert backend.engine.cache.workers["evicted"].sum() > 0
