"""The order of events over all workers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from kvgym.engine.serving.readings import HIT, INFLIGHT
from kvgym.engine.state import DECIDE, FINISHED
from kvgym.errors import SimulationError
from kvgym.types import DONE, REJECTED
from kvgym.workloads.fixed import Fixed


def row(*path: list[Any], **fields: Any) -> dict[str, Any]:
    return {"path": list(path), **fields}


def test_equal_times__steps_end_then_requests_arrive_then_workers_schedule(build: Any) -> None:
    """Request 0 ends at 2; 1 and 2 arrive at 2: both find 0 gone and its prompt cached, and share a batch."""
    rows = [row(["a", 4])] + [row(["a", 4], [f"b{i}", 4], arrival_s=2.0) for i in range(2)]
    engine = build(rows)
    seen = []
    while engine.run() == DECIDE:
        signals, _ = engine.signals(exact=True)
        seen.append((engine.pending, engine.now_s, signals[INFLIGHT, 0], signals[HIT, 0]))
        engine.route(0)
    assert seen == [(0, 0.0, 0, 0), (1, 2.0, 0, 4), (2, 2.0, 1, 4)]
    assert list(engine.records()["admitted_s"]) == [0.0, 2.0, 2.0]
    assert list(engine.records()["finish_s"]) == [2.0, 5.0, 5.0]


def test_six_requests__by_hand(build: Any, drain: Any) -> None:
    """Two workers, even requests to 0, odd ones to 1; prefill 1 + n / 4, decode (.5 + .125 B) + context / 64.

    Worker 0: request 0 (n 4, 2 tokens) 0 .. 2; request 2 arrived at 1 and goes before the decode step: 2 .. 4 (n 4,
    1 token); 0 decodes 4 .. 4.703125. Request 4 arrives then and finds request 0's prompt: 1 + 4 / 4 for 4 of 8 tokens.
    Worker 1: request 1 (n 8, 1 token) 0 .. 3; request 3 (n 4) arrives at 3 and is computed until 5; request 5 has the
    same prompt, arrives at 4 and needs its last token only, after 5: 6.25.
    """
    rows = [
        row(["a", 4], output_tokens=2),
        row(["c", 8]),
        row(["b", 4], arrival_s=1.0),
        row(["d", 4], arrival_s=3.0),
        row(["a", 4], ["e", 4], arrival_s=4.703125),
        row(["d", 4], arrival_s=4.0),
    ]
    records = drain(build(rows, capacity=[100, 100]), lambda request: request % 2)
    assert list(records["request"]) == [1, 2, 0, 3, 5, 4]
    assert list(records["finish_s"]) == [3.0, 4.0, 4.703125, 5.0, 6.25, 6.703125]
    by_request = np.sort(records, order="request")
    assert list(by_request["first_token_s"]) == [2.0, 3.0, 4.0, 5.0, 6.703125, 6.25]
    assert list(by_request["admitted_s"]) == [0.0, 0.0, 2.0, 3.0, 4.703125, 5.0]
    assert list(by_request["hit_tokens"]) == [0, 0, 0, 0, 4, 3]
    assert list(by_request["worker"]) == [0, 1, 0, 1, 0, 1]


def test_equal_times__the_lower_worker_ends_first(build: Any, drain: Any) -> None:
    rows = [row([name, 4]) for name in "abc"]
    records = drain(build(rows, capacity=[100] * 3), lambda request: 2 - request)
    assert list(records["worker"]) == [0, 1, 2]
    assert list(records["finish_s"]) == [2.0] * 3


def test_closed_loop__keeps_its_number_of_clients(build: Any) -> None:
    """Three clients, eight sessions of two turns: never more than three in the system, all served in order."""
    rows = []
    for s in range(8):
        rows += [row([f"s{s}", 5], session=s, output_tokens=2), row([f"s{s}", 5], ["t", 2], session=s, think_s=0.5)]
    engine = build(rows, clients=3)
    most = 0
    while engine.run() == DECIDE:
        most = max(most, int(engine.cache.clock["in_system"][0]))
        engine.route(0)
    records = np.sort(engine.records(), order="request")
    assert most == 3
    assert (records["arrival_s"][1::2] == records["finish_s"][::2] + 0.5).all()
    heads = records["arrival_s"][::2]
    assert list(heads[:3]) == [0.0] * 3 and (np.diff(heads) >= 0).all()
    assert set(heads[3:]) <= set(records["finish_s"][1::2])  # a head takes the place of a session that has ended


def test_open_loop__arrivals_do_not_wait(build: Any, drain: Any) -> None:
    rows = [row([f"s{s}", 50], arrival_s=s / 8) for s in range(20)]
    records = np.sort(drain(build(rows)), order="request")
    assert list(records["arrival_s"]) == [s / 8 for s in range(20)]


def test_capacity__may_differ_between_workers(build: Any, drain: Any) -> None:
    rows = [row(["a", 50]), row(["a", 50])]
    records = np.sort(drain(build(rows, capacity=[40, 80]), lambda request: request), order="request")
    assert list(records["status"]) == [REJECTED, DONE]


def test_integrals__are_the_sums_of_latency_and_ttft(build: Any, drain: Any) -> None:
    rows = [row([f"a{i}", 6 + i], output_tokens=1 + i, arrival_s=i / 2) for i in range(6)] + [row(["long", 400])]
    engine = build(rows, capacity=100)
    records = drain(engine)
    clock = engine.cache.clock[0]
    assert clock["area_s"] == (records["finish_s"] - records["arrival_s"]).sum()
    served = records[records["status"] == DONE]
    assert clock["ttft_area_s"] == (served["first_token_s"] - served["arrival_s"]).sum()


def test_decisions__out_of_order_are_refused(build: Any) -> None:
    engine = build([row(["a", 4])], capacity=[100, 100])
    with pytest.raises(SimulationError, match="no request waits for a route"):
        engine.route(0)
    with pytest.raises(SimulationError, match="no worker waits for an eviction"):
        engine.serve_eviction()
    assert engine.run() == DECIDE == engine.run()  # asking twice changes nothing
    for worker in (-1, 2):
        with pytest.raises(SimulationError, match=rf"worker must be a whole number 0\.\.1, got {worker}"):
            engine.route(worker)
    engine.route(1)
    assert engine.run() == FINISHED == engine.run()


def test_completions__come_once_and_in_order(build: Any) -> None:
    engine = build([row([f"a{i}", 4], arrival_s=3.0 * i) for i in range(5)])
    parts = []
    while engine.run() == DECIDE:
        parts.append(engine.completions())
        engine.route(0)
    parts.append(engine.completions())
    assert [len(part) for part in parts] == [0, 1, 1, 1, 1, 1]
    assert (np.concatenate(parts) == engine.records()).all()
    assert len(engine.completions()) == 0


def test_engine__refuses_another_page_size(build: Any) -> None:
    with pytest.raises(SimulationError, match="page size is 16, the workload's forest has 1"):
        build(Fixed(({"path": [["a", 4]]},)).generate(0), page=16)


def test_route__a_decision_that_takes_time_delays_the_request_and_counts_at_once(build: Any) -> None:
    """Request 0 (n 4: 1 + 4 / 4 s) is decided until 5 and served 5 .. 7; request 1 overtakes it: 1.5 .. 3.5."""
    engine = build([row(["a", 4]), row(["b", 4], arrival_s=1.0)])
    assert engine.run() == DECIDE
    engine.route(0, 5.0)
    assert engine.run() == DECIDE
    assert engine.signals(exact=True)[0][INFLIGHT, 0] == 1
    engine.route(0, 0.5)
    assert engine.run() == FINISHED
    assert list(engine.records()["finish_s"]) == [3.5, 7.0]


@pytest.mark.parametrize("delay_s", (-1.0, float("inf"), float("nan")))
def test_route__refuses_a_delay_that_is_none(build: Any, delay_s: float) -> None:
    engine = build([row(["a", 4])])
    engine.run()
    with pytest.raises(SimulationError, match="delay_s must be a finite number >= 0"):
        engine.route(0, delay_s)
