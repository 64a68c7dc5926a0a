"""What clients see across a network, and answers that are on their way when a worker fails; by hand.

Prefill takes 1 + n / 4, a decode step of one request .625 + context / 64.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from kvgym.engine.engine import Engine
from kvgym.engine.state import DECIDE
from kvgym.errors import SimulationError
from kvgym.types import DONE, REJECTED


def row(*path: list[Any], **fields: Any) -> dict[str, Any]:
    return {"path": list(path), **fields}


def integrals(engine: Engine) -> tuple[float, float]:
    clock = engine.cache.clock[0]
    return float(clock["area_s"]), float(clock["ttft_area_s"])


def test_network__delays_the_request_and_its_answer(build: Any, drain: Any) -> None:
    """Enters at .5, first token at 2.5, second at 2.5 + .625 + 5 / 64; the client sees both half a second later."""
    engine = build([row(["a", 4], output_tokens=2)], network_s=[[0.5]])
    records = drain(engine)
    assert list(records["admitted_s"]) == [0.5]
    assert list(records["first_token_s"]) == [3.0]
    assert list(records["finish_s"]) == [3.0 + 0.625 + 5 / 64]
    assert integrals(engine) == (3.0 + 0.625 + 5 / 64, 3.0)
    assert engine.now_s == 3.0 + 0.625 + 5 / 64


def test_network__adds_to_the_request_overhead_and_the_decision(build: Any, drain: Any) -> None:
    records = drain(build([row(["a", 4])], network_s=[[0.5]], request_s=0.25), delay_s=lambda request: 2.0)
    assert list(records["admitted_s"]) == [2.75]
    assert list(records["finish_s"]) == [2.75 + 2.0 + 0.5]


def test_integrals__count_what_clients_see_at_every_moment(build: Any) -> None:
    """At 2.75 the first token of request 0 (made at 2.5) is still on its way; at 3.25 it has been seen."""
    rows = [row(["a", 4], output_tokens=9), row(["b", 400], arrival_s=2.75), row(["c", 400], arrival_s=3.25)]
    engine = build(rows, capacity=100, network_s=[[0.5]])
    seen = []
    while engine.run() == DECIDE:
        clock = engine.cache.clock[0]
        seen.append((engine.now_s, int(clock["in_system"]), int(clock["no_first"])))
        engine.route(0)
    assert seen == [(0.0, 1, 1), (2.75, 2, 2), (3.25, 2, 1)]


def test_router__counts_a_request_as_in_flight_until_its_answer_is_there(build: Any) -> None:
    """Request 0 ends at 2.5 on the worker and at 3 at the client; answers at 3 come before arrivals at 3."""
    rows = [row(["a", 4]), *(row([f"b{i}", 400], arrival_s=time_s) for i, time_s in enumerate((2.75, 3.0)))]
    engine = build(rows, capacity=100, network_s=[[0.5]])
    seen = []
    while engine.run() == DECIDE:
        seen.append((engine.now_s, int(engine.cache.workers["inflight"][0])))
        engine.route(0)
    assert seen == [(0.0, 0), (2.75, 1), (3.0, 0)]
    records = np.sort(engine.records(), order="request")
    assert list(records["status"]) == [DONE, REJECTED, REJECTED]
    assert list(records["finish_s"]) == [3.0, 2.75, 3.0]  # a refusal is the router's own


def test_closed_loop__the_next_turn_comes_when_the_client_has_the_answer(build: Any, drain: Any) -> None:
    rows = [row(["a", 4], session=1), row(["a", 4], ["b", 4], session=1, think_s=1.0)]
    records = drain(build(rows, network_s=[[0.5]]))
    assert list(records["finish_s"]) == [3.0, 4.0 + 0.5 + 2.0 + 0.5]
    assert list(records["arrival_s"]) == [0.0, 4.0]


def test_regions__have_their_own_delay_to_each_worker(build: Any, drain: Any) -> None:
    rows = [row([f"a{i}", 4], region=i // 2, arrival_s=10.0 * i) for i in range(4)]
    engine = build(rows, capacity=[100, 100], network_s=[[0.0, 0.25], [2.0, 1.0]])
    records = drain(engine, lambda request: request % 2)
    assert list(records["finish_s"] - records["arrival_s"]) == [2.0, 2.0 + 2 * 0.25, 2.0 + 2 * 2.0, 2.0 + 2 * 1.0]


def test_regions__one_row_of_delays_holds_for_all_and_more_regions_than_rows_are_refused(
    build: Any, drain: Any
) -> None:
    rows = [row(["a", 4], region=7)]
    assert list(drain(build(rows, network_s=[[0.5]]))["finish_s"]) == [3.0]
    with pytest.raises(SimulationError, match=r"from region 7, the cluster's network_s names 2 regions \(0 to 1\)"):
        build(rows, network_s=[[0.5], [0.5]])


def test_no_delay__equals_no_network(build: Any, drain: Any, episodes: Any) -> None:
    from hypothesis import given

    @episodes.examples(20)
    @given(episodes.any(1))
    def check(case: Any) -> None:
        near = case.engine("lru", network_s=[[0.0] * len(case.capacities)])
        assert drain(near, case.worker).tobytes() == drain(case.engine("lru"), case.worker).tobytes()

    check()


def test_failure__loses_a_first_token_that_is_on_its_way(build: Any, drain: Any) -> None:
    """Delay 2: the first token is made at 4 and would be there at 6; the worker dies at 5. Again from 5.25: 7.25 to
    9.25 on the next worker, seen at 11.25. The client never saw the first one."""
    rows = [row(["a", 4], output_tokens=9)]
    engine = build(rows, capacity=[100, 100], network_s=[[2.0, 2.0]], schedule=[(5.0, 0, "fail")], retry_s=0.25)
    records = drain(engine, lambda request: int(engine.cache.workers["visible"][0] == 0))
    assert list(records["first_token_s"]) == [11.25]
    assert list(records["attempts"]) == [2]
    area_s, ttft_area_s = integrals(engine)
    assert (area_s, ttft_area_s) == (records["finish_s"][0], 11.25)


def test_failure__does_not_lose_an_answer_that_has_left_the_worker(build: Any, drain: Any) -> None:
    """Request 0 ends at 4 on the worker, which dies at 5; its client has the answer at 6. Request 1 is lost."""
    rows = [row(["a", 4]), row(["b", 40])]
    engine = build(
        rows, capacity=[100, 100], network_s=[[2.0, 2.0]], schedule=[(5.0, 0, "fail")], max_running=1, retries=0
    )
    records = drain(engine)
    assert [tuple(record) for record in records[["request", "status", "finish_s"]]] == [(1, 5, 5.0), (0, DONE, 6.0)]
    assert integrals(engine) == (5.0 + 6.0, 5.0 + 6.0)
