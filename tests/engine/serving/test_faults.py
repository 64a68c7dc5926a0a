"""Workers that join, fail and come back: by hand, and on random schedules."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from controllers.eviction import EVICTION
from kvgym.engine.cache.integrity import first_broken
from kvgym.engine.engine import Engine
from kvgym.engine.state import DECIDE, EVICT, FINISHED
from kvgym.errors import SimulationError
from kvgym.types import DONE, FAILED, REJECTED


def row(*path: list[Any], **fields: Any) -> dict[str, Any]:
    return {"path": list(path), **fields}


def up(engine: Engine) -> list[int]:
    return np.flatnonzero(engine.cache.workers["visible"]).tolist()


def play(engine: Engine, wish: Any) -> tuple[np.ndarray, list[tuple[float, int, list[int]]]]:
    """Run to the end: request r goes to wish(r), or to the first worker that is up; return records and decisions."""
    seen = []
    while (code := engine.run()) != FINISHED:
        if code == EVICT:
            engine.serve_eviction()
            continue
        workers = up(engine)
        seen.append((engine.now_s, engine.pending, workers))
        worker = wish(engine.pending)
        engine.route(worker if worker in workers else workers[0])
    return engine.records(), seen


def sums(engine: Engine, records: np.ndarray) -> None:
    """The integrals are the sums of latency and of the time without a first token."""
    clock, arrival_s = engine.cache.clock[0], records["arrival_s"]
    first_s = np.where(records["first_token_s"] >= 0, records["first_token_s"], records["finish_s"])
    assert clock["area_s"] == pytest.approx((records["finish_s"] - arrival_s).sum())
    assert clock["ttft_area_s"] == pytest.approx((first_s - arrival_s).sum())


def test_six_requests__by_hand(build: Any) -> None:
    """Prefill takes 1 + n / 4. Worker 1 fails at 2.5 and is back at 6; a lost request is at the router half a second
    later.

    Worker 0: request 0 (n 4) 0 .. 2; request 3 (the same prompt, one token to compute) 2 .. 3.25; then 1 and 2 in one
    batch, n 8 + 4: 3.25 .. 7.25; then 5, which came at 5 when only worker 0 was there: 7.25 .. 9.25.
    Worker 1: request 1 (n 8) would have ended at 3; request 2 waits; both are lost. Request 4 has request 1's prompt
    and finds nothing of it: 6 .. 9.
    """
    rows = [
        row(["a", 4]),
        row(["b", 8]),
        row(["c", 4], arrival_s=2.0),
        row(["a", 4], arrival_s=2.0),
        row(["b", 8], arrival_s=6.0),
        row(["d", 4], arrival_s=5.0),
    ]
    engine = build(rows, capacity=[100, 100], schedule=[(2.5, 1, "fail"), (6.0, 1, "recover")], retry_s=0.5)
    records, seen = play(engine, [0, 1, 1, 0, 1, 1].__getitem__)
    assert seen[2:] == [
        (2.0, 2, [0, 1]),
        (2.0, 3, [0, 1]),
        (3.0, 1, [0]),
        (3.0, 2, [0]),
        (5.0, 5, [0]),
        (6.0, 4, [0, 1]),
    ]
    assert list(records["request"]) == [0, 3, 1, 2, 4, 5]
    assert list(records["finish_s"]) == [2.0, 3.25, 7.25, 7.25, 9.0, 9.25]
    records = np.sort(records, order="request")
    assert list(records["attempts"]) == [1, 2, 2, 1, 1, 1]
    assert list(records["worker"]) == [0, 0, 0, 0, 1, 0]
    assert list(records["hit_tokens"]) == [0, 0, 0, 3, 0, 0]
    assert list(records["admitted_s"]) == [0.0, 3.25, 3.25, 2.0, 6.0, 7.25]
    assert list(records["arrival_s"]) == [0.0, 0.0, 2.0, 2.0, 6.0, 5.0]
    workers = engine.cache.workers
    assert list(workers["busy_s"]) == [9.25, 2.5 + 3.0]
    assert list(workers["incarnation"]) == [0, 1]
    assert engine.cache.clock["area_s"][0] == 2.0 + 7.25 + 5.25 + 1.25 + 3.0 + 4.25
    sums(engine, records)


def test_broken_stream__starts_again_from_its_prompt(build: Any) -> None:
    """First token at 2, then decode steps of .625 + context / 64 (5 tokens, 6, ...): two are over at 3.5, so three
    tokens had been sent. On worker 1 again 1 + 4 / 4 s to the first token, and four steps."""
    rows = [row(["a", 4], output_tokens=5)]
    engine = build(rows, capacity=[100, 100], schedule=[(3.5, 0, "fail")], retry_s=0.25)
    records, _ = play(engine, [0].__getitem__)
    assert list(records["first_token_s"]) == [5.75]
    assert list(records["finish_s"]) == [5.75 + 4 * 0.625 + (5 + 6 + 7 + 8) / 64]
    assert (records["output_tokens"][0], records["attempts"][0], records["worker"][0]) == (5, 2, 1)
    assert list(engine.cache.workers["steps"]) == [1 + 2, 1 + 4]
    assert engine.cache.workers["busy_s"][0] == 3.5
    sums(engine, records)


def test_detection__requests_sent_to_a_dead_worker_come_back_when_it_is_noticed(build: Any) -> None:
    """Worker 1 dies at 1 and is noticed at 3: request 0, running there, and 1, sent at 2, are lost at 3."""
    rows = [row(["a", 8]), row(["b", 4], arrival_s=2.0)]
    engine = build(rows, capacity=[100, 100], schedule=[(1.0, 1, "fail")], detect_s=2.0, retry_s=0.0)
    records, seen = play(engine, lambda request: 1)
    assert seen == [(0.0, 0, [0, 1]), (2.0, 1, [0, 1]), (3.0, 0, [0]), (3.0, 1, [0])]
    assert list(records["finish_s"]) == [3.0 + 1.0 + 12 / 4] * 2
    assert engine.cache.workers["busy_s"][1] == 1.0
    sums(engine, records)


def test_detection__ends_when_the_worker_is_back(build: Any) -> None:
    rows = [row(["a", 8]), row(["a", 8], arrival_s=3.0)]
    engine = build(rows, schedule=[(1.0, 0, "fail"), (2.0, 0, "recover")], detect_s=60.0, retry_s=0.5)
    records, seen = play(engine, lambda request: 0)
    assert [time_s for time_s, _, _ in seen] == [0.0, 2.5, 3.0]
    assert list(records["finish_s"]) == [2.5 + 3.0, 5.5 + 1.25]
    assert list(records["hit_tokens"]) == [0, 7]


def test_retries__end_in_a_failed_record(build: Any) -> None:
    """Two workers die one after the other; with one retry the request has been sent twice and fails."""
    rows = [row(["a", 40], output_tokens=3)]
    schedule = [(1.0, 0, "fail"), (3.0, 1, "fail"), (4.0, 0, "recover")]
    engine = build(rows, capacity=[100, 100], schedule=schedule, retries=1)
    records, _ = play(engine, lambda request: request)
    assert (records["status"][0], records["attempts"][0], records["finish_s"][0]) == (FAILED, 2, 3.0)
    assert (records["first_token_s"][0], records["admitted_s"][0], records["output_tokens"][0]) == (-1.0, -1.0, 0)
    sums(engine, records)
    again = build(rows, capacity=[100, 100], schedule=schedule, retries=2)
    records, _ = play(again, lambda request: request)
    assert (records["status"][0], records["attempts"][0], records["worker"][0]) == (DONE, 3, 0)
    none = build(rows, capacity=[100, 100], schedule=schedule, retries=0)
    records, _ = play(none, lambda request: request)
    assert (records["status"][0], records["attempts"][0], records["finish_s"][0]) == (FAILED, 1, 1.0)


def test_nobody_up__requests_wait_for_the_next_worker_in_order_of_arrival(build: Any) -> None:
    rows = [row([f"a{i}", 4], arrival_s=[2.0, 1.0, 3.0][i]) for i in range(3)]
    engine = build(rows, capacity=[100, 100], schedule=[(5.0, 1, "join"), (0.0, 0, "fail")])
    records, seen = play(engine, lambda request: 0)
    assert seen == [(5.0, 1, [1]), (5.0, 0, [1]), (5.0, 2, [1])]
    assert list(records["finish_s"]) == [9.0] * 3
    sums(engine, records)


def test_nobody_ever_up__requests_fail_when_they_arrive(build: Any) -> None:
    """The session's later turn and the backlog of the closed loop end too: one record for each."""
    rows = [row(["a", 4], session=1), row(["a", 4], ["b", 4], session=1), row(["c", 4]), row(["d", 4], think_s=2.0)]
    engine = build(rows, clients=2, schedule=[(0.5, 0, "fail")], retries=5)
    records, _ = play(engine, lambda request: 0)
    assert list(records["status"]) == [FAILED] * 4
    # 0 and 2 are lost at .5 and fail when they are back; then the next turn of 0's session, and 3 after its thinking
    assert list(records["request"]) == [0, 1, 2, 3]
    assert records["finish_s"] == pytest.approx([0.6, 0.6, 0.6, 2.6])
    assert list(records["attempts"]) == [1, 0, 1, 0]
    sums(engine, records)


def test_failed_session__ends_and_frees_its_client(build: Any) -> None:
    """No retries: the first turn fails, the second is never sent, the client goes on with the next session."""
    rows = [row(["a", 8], session=1), row(["a", 8], ["b", 4], session=1), row(["c", 4])]
    engine = build(rows, capacity=[100, 100], clients=1, schedule=[(1.0, 1, "fail")], retries=0)
    records, _ = play(engine, [1, 0, 0].__getitem__)
    assert list(zip(records["request"], records["status"], records["attempts"], strict=True)) == [
        (0, FAILED, 1),
        (1, FAILED, 0),
        (2, DONE, 1),
    ]
    assert list(records["arrival_s"]) == [0.0, 1.0, 1.0]
    assert list(records["finish_s"]) == [1.0, 1.0, 3.0]
    assert list(records["worker"]) == [1, -1, 0]
    sums(engine, records)


def test_equal_times__steps_end_then_the_fleet_changes_then_requests_arrive(build: Any) -> None:
    """Request 0 ends at 2, when its worker fails: it is done. Request 1 arrives at 2 and sees only worker 1."""
    rows = [row(["a", 4]), row(["b", 4], arrival_s=2.0)]
    engine = build(rows, capacity=[100, 100], schedule=[(2.0, 0, "fail")])
    records, seen = play(engine, lambda request: 0)
    assert (records["status"] == DONE).all() and list(records["attempts"]) == [1, 1]
    assert seen[1] == (2.0, 1, [1])
    # an admission at 2 comes after the failure: nothing is computed by the dead worker
    engine = build([row(["a", 4]), row(["b", 4])], schedule=[(2.0, 0, "fail"), (3.0, 0, "recover")], max_running=1)
    records, _ = play(engine, lambda request: 0)
    assert list(records["attempts"]) == [1, 2] and engine.cache.workers["busy_s"][0] == 2.0 + 2.0


def test_chunked_prompt__is_lost_between_two_chunks_too(build: Any) -> None:
    """Chunks of 4 tokens take 2 s each. A failure at 2 finds the prompt between chunks, one at 3 within the second."""
    for time_s in (2.0, 3.0):
        engine = build([row(["a", 12])], chunk=4, schedule=[(time_s, 0, "fail"), (4.0, 0, "recover")], retry_s=0.0)
        records, _ = play(engine, lambda request: 0)
        assert list(records["finish_s"]) == [10.0] and list(records["hit_tokens"]) == [0]
        assert engine.cache.workers["busy_s"][0] == time_s + 6.0


def test_rejected__stays_rejected_on_a_dead_worker(build: Any) -> None:
    engine = build([row(["a", 400])], capacity=100, schedule=[(0.0, 0, "fail")], detect_s=5.0)
    records, _ = play(engine, lambda request: 0)
    assert list(records["status"]) == [REJECTED]


def test_route__to_a_worker_that_is_down_is_refused(build: Any) -> None:
    engine = build([row(["a", 4])], capacity=[100] * 3, schedule=[(0.0, 1, "fail"), (9.0, 2, "join")])
    assert engine.run() == DECIDE
    for worker in (1, 2):
        with pytest.raises(SimulationError, match=rf"worker {worker} is down; choose one .*: \[0\]"):
            engine.route(worker)


@pytest.mark.parametrize("policy", EVICTION)
def test_cleared_worker__is_like_a_new_one(build: Any, policy: str) -> None:
    """Fill two small caches and restart one: nothing is left of it, the other keeps all, and it fills again."""
    rows = [row([i % 7, 9 + i % 7], ["q", 5], output_tokens=3, arrival_s=10.0 * i) for i in range(60)]
    engine = build(rows, policy, [60, 60], schedule=[(305.0, 1, "fail"), (305.0, 1, "recover")])
    while engine.run() == DECIDE:
        if engine.pending == 31:
            kept, empty = engine.cache.workers
            for name in ("evictable", "protected", "private", "leaves", "unmarked", "marked", "running", "context"):
                assert empty[name] == 0, name
            assert empty["free"] == 60 and empty["evicted"] > 0 and kept["evictable"] > 0
            holders = engine.cache.slots["worker"][engine.cache.table[engine.cache.table >= 0]]
            assert set(holders) == {0}
            assert not engine.cache.memory[1].any()
            assert policy != "reuse" or engine.cache.memory[0].any()
            evicted = int(empty["evicted"])
        engine.route(engine.pending % 2)
    assert engine.cache.workers["evicted"][1] > evicted
    assert (engine.records()["status"] == DONE).all()


def test_run_rule__respects_the_fleet(build: Any) -> None:
    rows = [row([f"a{i}", 4], arrival_s=float(i)) for i in range(12)]
    for rule in (0, 1):
        engine = build(rows, capacity=[100] * 3, schedule=[(3.5, 1, "fail"), (5.5, 2, "join")])
        assert engine.run_rule(rule) == FINISHED
        records = np.sort(engine.records(), order="request")
        assert (records["status"] == DONE).all()
        assert not (records["worker"][4:] == 1).any() and not (records["worker"][:6] == 2).any()
        assert set(records["worker"]) == {0, 1, 2}


# --- random schedules ------------------------------------------------------------------------------------------------


@st.composite
def schedules(draw: st.DrawFn, workers: int) -> list[tuple[float, int, str]]:
    """Events of every worker: absent, up and down in turn, at times on a grid where they meet steps and arrivals."""
    entries = []
    for worker in range(workers):
        times = sorted(draw(st.lists(st.integers(0, 60), max_size=5)))
        absent = draw(st.booleans()) and draw(st.booleans())
        for i, time in enumerate(times):
            event = ("fail", "recover")[(i + absent) % 2]
            entries.append((time / 2, worker, "join" if absent and i == 0 else event))
    return entries


@st.composite
def faulty(draw: st.DrawFn, episodes: Any, page: int) -> tuple[Any, dict[str, Any]]:
    case = draw(episodes.any(page))
    fleet: dict[str, Any] = {"schedule": draw(schedules(len(case.capacities)))}
    fleet["detect_s"] = draw(st.sampled_from((0.0, 0.0, 0.5, 4.0)))
    fleet["retry_s"] = draw(st.sampled_from((0.0, 0.5)))
    fleet["retries"] = draw(st.integers(0, 3))
    if draw(st.booleans()):
        fleet |= {"blocked": 1, "front_free": draw(st.booleans()), "whole_prompt": draw(st.booleans())}
    delay = st.sampled_from((0.0, 0.25, 2.0))
    if draw(st.booleans()):
        fleet["network_s"] = [[draw(delay) for _ in case.capacities]]
    return case, fleet


def check_end(engine: Engine, records: np.ndarray, retries: int) -> None:
    """Every request has one record, and nobody is anywhere."""
    assert sorted(records["request"]) == list(range(len(engine.workload.requests)))
    assert np.isin(records["status"], (DONE, REJECTED, FAILED)).all()
    assert (np.diff(records["finish_s"]) >= 0).all()
    assert (records["attempts"] <= retries + 1).all()
    assert (records["attempts"][records["status"] == DONE] >= 1).all()
    served = records[records["status"] == DONE]
    for early, late in (("arrival_s", "admitted_s"), ("admitted_s", "first_token_s"), ("first_token_s", "finish_s")):
        assert (served[early] <= served[late]).all()
    sums(engine, records)
    workers, clock = engine.cache.workers, engine.cache.clock[0]
    for name in ("private", "protected", "inflight", "inflight_tokens", "queued", "running", "batch", "context"):
        assert not workers[name].any(), name
    assert (workers["free"] + workers["evictable"] == workers["capacity"]).all()
    assert clock["in_system"] == clock["no_first"] == clock["heap"] == 0
    assert first_broken(engine.cache) == (-1, 0)


@pytest.mark.parametrize("page", [1, 16])
@pytest.mark.parametrize("policy", ["lru", "rlt", "random_leaf"])
def test_random_schedules__lose_nothing(episodes: Any, policy: str, page: int) -> None:
    """The engine checks its integrity after every event; pause, fork and pickle change nothing."""
    seen = np.zeros(3, np.int64)

    @episodes.examples(80)
    @given(faulty(episodes, page), st.integers(0, 12))
    def check(drawn: tuple[Any, dict[str, Any]], stop: int) -> None:
        case, fleet = drawn
        engine = case.engine(policy, **fleet)
        records, decisions = play(engine, case.worker)
        assert all(workers for _, _, workers in decisions)
        check_end(engine, records, fleet["retries"])
        whole = records.tobytes()
        assert play(case.engine(policy, pause_evict=1, **fleet), case.worker)[0].tobytes() == whole
        engine = case.engine(policy, **fleet)
        for _ in range(stop):
            if engine.run() != DECIDE:
                break
            workers, wish = up(engine), case.worker(engine.pending)
            engine.route(wish if wish in workers else workers[0])
        twin, thawed = engine.fork(), pickle.loads(pickle.dumps(engine))
        for other in (twin, engine, thawed):
            assert play(other, case.worker)[0].tobytes() == whole
        seen[:] += [(records["status"] == FAILED).sum(), (records["attempts"] > 1).sum(), len(records)]

    check()
    assert (seen > 20).all()  # failures and retries did happen
