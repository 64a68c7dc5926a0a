"""Each part with traffic made by hand, and all of them against a slow, independent reading of the definitions."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
import pytest

from kvgym.config.cluster import ClusterConfig
from kvgym.config.loader import resolve_workload
from kvgym.config.schedule import FleetEvent
from kvgym.config.signals import SignalsConfig
from kvgym.harness.compare.cell import Cell
from kvgym.harness.compare.run import run
from kvgym.harness.measure import waterfall as module
from kvgym.harness.measure.waterfall import PARTS, mean_shares
from kvgym.types import DONE, REJECTED
from kvgym.workloads.fixed import Fixed

SPEED = {"model": "analytic", "cached_ms": 0.0, "miss_ms": 1.0}
"""One request at a time; a prompt of 1,000 new tokens takes one second."""


class Script:
    """Sends the requests where the test says, whoever is up; its sends in order."""

    routes: ClassVar[list[int]] = []

    def reset(self, spec: Any, seed: int) -> None:
        self.step = -1

    def act(self, decision: Any) -> int:
        self.step += 1
        return self.routes[self.step]

    def observe(self, records: np.ndarray) -> None:
        pass


class ScriptTable:
    def load(self, name: str) -> type[Script]:
        return Script


def make_cell(source: Any, fleet: ClusterConfig, routing: str, eviction: str = "lru", **changes: Any) -> Cell:
    return Cell("w", source, "c", fleet, routing, routing, {}, eviction, {}, **changes)


@pytest.fixture
def parts(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return a function that plays rows and gives the parts of each request that are not 0."""
    seen: dict[str, Any] = {}
    original = module.tokens_by_part

    def listen(*arguments: Any) -> dict[str, np.ndarray]:
        seen["parts"], seen["records"] = original(*arguments), arguments[1]
        return seen["parts"]

    monkeypatch.setattr(module, "tokens_by_part", listen)
    monkeypatch.setattr("kvgym.config.contracts.table", lambda family: ScriptTable())

    def play(rows: list[dict[str, Any]], routes: list[int], **fleet: Any) -> dict[int, dict[str, int]]:
        Script.routes = routes
        settings = {"workers": 2, "capacity_tokens": 5000, "cost": SPEED, "one_at_a_time": True}
        settings |= {"request_overhead_s": 0.0, "step_overhead_s": 0.0}
        run(make_cell(Fixed(tuple(rows)), ClusterConfig(**{**settings, **fleet}), "script"), 0)
        done = seen["records"][seen["records"]["status"] == DONE]
        tokens = {name: values.tolist() for name, values in seen["parts"].items()}
        assert list(tokens) == list(PARTS)
        return {
            int(request): {name: values[i] for name, values in tokens.items() if values[i]}
            for i, request in enumerate(done["request"].tolist())
        }

    return play


def ask(name: str, at_s: float, tokens: int = 1000) -> dict[str, Any]:
    return {"path": [[name, tokens]], "arrival_s": at_s}


def test_new_and_hit(parts):
    """The last token of a prompt is always computed, so a full hit lacks one."""
    found = parts([ask("a", 0.0), ask("a", 5.0)], [0, 0])
    assert found == {0: {"new": 1000}, 1: {"rounding": 1, "hit": 999}}


def test_routing__another_worker_holds_it(parts):
    assert parts([ask("a", 0.0), ask("a", 5.0)], [0, 1])[1] == {"routing": 999, "rounding": 1}


def test_in_flight__two_workers_compute_the_same(parts):
    assert parts([ask("a", 0.0), ask("a", 0.5)], [0, 1])[1] == {"in_flight": 999, "rounding": 1}


def test_late__computed_elsewhere_by_who_came_later(parts):
    """Request 1 waits for 0 until 2.0 s; request 2 comes after it, and worker 1 has computed it by 1.2 s."""
    rows = [ask("x", 0.0, 2000), ask("a", 0.1), ask("a", 0.2)]
    found = parts(rows, [0, 0, 1])
    assert found[1] == {"late": 999, "rounding": 1}
    assert found[2] == {"in_flight": 999, "rounding": 1}


def test_late__not_what_is_computed_after_admission(parts):
    """Request 2's prefill lasts until 2.2 s, so when request 1 is admitted at 2.0 s nobody has its prompt."""
    rows = [ask("x", 0.0, 2000), ask("a", 0.1), ask("a", 0.2, 1000), ask("y", 0.15, 1000)]
    assert parts(rows, [0, 0, 1, 1])[1] == {"new": 1000}


def test_eviction__the_chosen_worker_had_it(parts):
    rows = [ask("a", 0.0, 3000), ask("b", 10.0, 3000), ask("a", 20.0, 3000)]
    assert parts(rows, [0, 0, 0])[2] == {"eviction": 2999, "rounding": 1}


def test_eviction__while_the_request_waited(parts):
    """At routing worker 0 holds "a"; "b", which is served first, drives it out."""
    rows = [ask("a", 0.0, 3000), ask("b", 10.0, 3000), ask("a", 10.5, 3000)]
    assert parts(rows, [0, 0, 0])[2] == {"eviction": 2999, "rounding": 1}


def test_gone__others_had_it_and_evicted_it(parts):
    rows = [ask("a", 0.0, 3000), ask("b", 10.0, 3000), ask("a", 20.0, 3000)]
    assert parts(rows, [0, 0, 1])[2] == {"gone": 2999, "rounding": 1}


def test_routing__comes_before_eviction(parts):
    """Worker 0 has evicted what worker 1 holds: a better choice was there."""
    rows = [ask("a", 0.0, 3000), ask("a", 0.1, 3000), ask("b", 10.0, 3000), ask("a", 20.0, 3000)]
    assert parts(rows, [0, 1, 0, 0])[3] == {"routing": 2999, "rounding": 1}


def test_rounding__a_page_that_two_prompts_share_in_part(parts):
    rows = [
        {"path": [["s", 20], ["x", 30]], "arrival_s": 0.0},
        {"path": [["s", 20], ["y", 30]], "arrival_s": 5.0},
        {"path": [["s", 20], ["x", 30]], "arrival_s": 10.0},
    ]
    found = parts(rows, [0, 0, 0], page_size=16)
    assert found[1] == {"new": 30, "rounding": 4, "hit": 16}
    assert found[2] == {"rounding": 2, "hit": 48}  # 50 tokens, three pages of them


def test_rounding__the_last_token_of_an_answer_is_never_computed(parts):
    turn = {"session": "s", "output_tokens": 50}
    rows = [
        {"path": [["a", 100]], "answer": "b", **turn},
        {"path": [["a", 100], ["b", 50], ["c", 10]], "think_s": 5.0, **turn},
    ]
    assert parts(rows, [0, 0])[1] == {"new": 10, "rounding": 1, "hit": 149}
    assert parts(rows, [0, 1])[1] == {"new": 10, "rounding": 1, "routing": 149}


def test_lost__the_worker_that_had_it_failed(parts):
    faults = (FleetEvent(5.0, 0, "fail"), FleetEvent(6.0, 0, "recover"))
    rows = [ask("a", 0.0), ask("a", 10.0), ask("a", 20.0)]
    for routes in ([0, 0, 0], [0, 1, 1]):
        found = parts(rows, routes, schedule=faults)
        assert found[1] == {"rounding": 1, "lost": 999} and found[2] == {"rounding": 1, "hit": 999}


def test_lost__with_the_request_itself(parts):
    """Half of the prompt is computed when worker 0 fails; the retry computes it all."""
    found = parts([ask("a", 4.5), ask("b", 4.6)], [0, 1, 1], schedule=(FleetEvent(5.0, 0, "fail"),))
    assert found[0] == {"rounding": 1, "lost": 999}
    assert found[1] == {"new": 1000}


def test_parts__a_request_with_several(parts):
    """1,000 tokens shared with worker 0, 500 more with worker 1, 250 new."""
    rows = [
        {"path": [["s", 1000]], "arrival_s": 0.0},
        {"path": [["s", 1000], ["t", 500]], "arrival_s": 5.0},
        {"path": [["s", 1000], ["t", 500], ["u", 250]], "arrival_s": 10.0},
    ]
    assert parts(rows, [0, 1, 0])[2] == {"new": 250, "routing": 500, "hit": 1000}


def test_network__what_the_client_sees_is_not_when_it_was_computed(parts):
    """The first token takes 10 s to its client; the worker holds the prompt meanwhile, and evicts it all the same."""
    rows = [ask("a", 0.0, 3000), ask("b", 0.1, 3000), ask("a", 7.0, 3000)]
    assert parts(rows, [0, 0, 1], network_s=10.0)[2] == {"in_flight": 2999, "rounding": 1}  # still on its way there
    later = [ask("a", 0.0, 3000), ask("b", 0.1, 3000), ask("a", 17.0, 3000)]
    assert parts(later, [0, 0, 1], network_s=10.0)[2] == {"gone": 2999, "rounding": 1}


def test_mean_shares__by_hand():
    zero = dict.fromkeys(PARTS, 0)
    runs = [{**zero, "new": 60, "hit": 40, "believed": 50}, {**zero, "new": 50, "hit": 50}]
    assert mean_shares(runs)["hit"] == (0.45, 0.4, 0.5) and "believed" not in mean_shares(runs)
    assert mean_shares(runs[:1])["believed"] == (0.5, 0.5, 0.5)
    assert mean_shares([runs[0], None]) == mean_shares([]) == {}


# -- against a slow reading of the definitions ------------------------------------------------------------------------


def slow(workload: Any, records: np.ndarray, course: Any, served: Any) -> dict[str, np.ndarray]:
    """Ask for every token of every request each question in turn, with all other requests at hand."""
    nodes, requests, page = workload.forest.nodes, workload.requests, served.page_size
    done, delay_s = records[records["status"] == DONE], served.delay_s[records["status"] == DONE]
    rejected = set(records["request"][records["status"] == REJECTED].tolist())
    sends = [s for s in zip(course.sent, course.workers, course.times_s, strict=True) if s[0] not in rejected]
    order = {request: k for k, request in enumerate(course.sent)}
    paths = {node: set(workload.forest.path(int(node)).tolist()) for node in np.unique(requests["prompt_node"])}

    def common(node: int, other: int, limit: int) -> int:
        shared = paths[node] & set(workload.forest.path(int(other)).tolist())
        return min(max((int(nodes[x]["end"]) for x in shared), default=0), limit)

    def fails_s(worker: int, after_s: float) -> float:
        times = [e.time_s for e in served.schedule if e.worker == worker and e.event == "fail" and e.time_s > after_s]
        return min(times, default=np.inf)

    result = {name: np.zeros(len(done), np.int64) for name in PARTS}
    for i, row in enumerate(done):
        node, r = int(requests["prompt_node"][row["request"]]), int(row["request"])
        at_s, k = course.times_s[order[r]], order[r]
        seen, able, computed, by_then, mine, lost = [0], [0], [0], [0], [0], [0]
        for j, (request, worker, time_s) in enumerate(zip(course.sent, course.workers, course.times_s, strict=True)):
            if (request, worker, time_s) not in sends or j >= k:
                continue
            depth = common(node, requests["prompt_node"][request], 1 << 40)
            seen.append(depth)
            able.append(depth)
            if fails_s(worker, time_s) <= at_s:
                lost.append(depth)
        for q, late_s in zip(done, delay_s, strict=True):
            length = int(q["prompt_tokens"])
            ready = [(q["first_token_s"] - late_s, requests["prompt_node"][q["request"]], length)]
            if requests["output_node"][q["request"]] >= 0:
                whole = length + int(q["output_tokens"])
                ready.append((q["finish_s"] - late_s, requests["output_node"][q["request"]], whole - 1))
                if ready[1][0] <= at_s:
                    seen.append(common(node, ready[1][1], whole))
            for time_s, other, limit in ready:
                depth = common(node, other, limit)
                end_s = fails_s(q["worker"], time_s)
                if time_s <= row["admitted_s"]:
                    by_then.append(depth)
                    if q["worker"] == row["worker"] and end_s > row["admitted_s"]:
                        mine.append(depth)
                if time_s <= at_s:
                    computed.append(depth)
                    able.append(depth)
                    if end_s <= at_s:
                        lost.append(depth)
        here, elsewhere = int(course.here[r]), int(course.elsewhere[r])
        sent, ever = max(*able, here, elsewhere), max(*able, *by_then, here, elsewhere)
        for d in range(int(row["prompt_tokens"])):
            last_of_page = d // page * page + page
            if d < row["hit_tokens"]:
                part = "hit"
            elif d >= max(*seen, ever):
                part = "new"
            elif last_of_page > min(ever, int(row["prompt_tokens"]) - 1):
                part = "rounding"
            elif last_of_page > sent:
                part = "late"
            elif here <= d < elsewhere:
                part = "routing"
            elif d < max(*mine, here):
                part = "eviction"
            elif d < max(lost):
                part = "lost"
            else:
                part = "gone" if d < max(computed) else "in_flight"
            result[part][i] += 1
    return result


GSP = {"source": "gsp", "groups": 5, "prompts_per_group": 8, "lens": [64, 150], "rate_rps": 40.0, "output_tokens": 20}
CHAT = {
    "source": "fixed",
    "rows": [
        {
            "path": [["s", 37], [f"u{c % 4}", 30], *([f"{kind}{c}.{n}", 23] for n in range(turn) for kind in "aq")],
            "answer": f"a{c}.{turn}",
            "output_tokens": 23,
            "session": c,
            "arrival_s": 0.05 * c,
            "think_s": 0.1,
        }
        for c in range(12)
        for turn in range(4)
    ],
}
FAULTS = (
    FleetEvent(0.3, 0, "fail"),
    FleetEvent(0.6, 0, "recover"),
    FleetEvent(0.9, 1, "fail"),
    FleetEvent(0.2, 2, "join"),
)


@pytest.mark.parametrize("workload", [GSP, CHAT], ids=["gsp", "chat"])
@pytest.mark.parametrize(
    ("fleet", "signals"),
    [
        ({}, {}),
        ({"page_size": 16}, {}),
        ({"page_size": 16, "engine": "vllm-0.33"}, {}),
        ({"schedule": FAULTS, "detect_s": 0.05, "retry_delay_s": 0.1}, {}),
        ({"page_size": 4, "schedule": FAULTS}, {"routers": 3}),
        ({"network_s": (0.2, 0.0, 0.05)}, {"observability": "exact"}),
    ],
    ids=["plain", "pages", "vllm", "faults", "faults, routers, pages", "network"],
)
@pytest.mark.parametrize("eviction", ["lru", "rlt"])
def test_parts__are_those_of_a_slow_reading(monkeypatch, workload, fleet, signals, eviction):
    if "engine" in fleet and eviction != "lru":
        pytest.skip("vLLM's free list takes no policy")
    seen: dict[str, Any] = {}
    original = module.tokens_by_part

    def listen(*arguments: Any) -> dict[str, np.ndarray]:
        seen["arguments"], seen["parts"] = arguments, original(*arguments)
        return seen["parts"]

    monkeypatch.setattr(module, "tokens_by_part", listen)
    config = ClusterConfig(**{"workers": 3, "capacity_tokens": 700, **fleet})
    cell = make_cell(resolve_workload(workload), config, "round_robin", eviction, signals=SignalsConfig(**signals))
    result = run(cell, 1)
    expected = slow(*seen["arguments"])
    for name in PARTS:
        assert seen["parts"][name].tolist() == expected[name].tolist(), name
    done = result.records[result.records["status"] == DONE]
    assert (sum(seen["parts"].values()) == done["prompt_tokens"]).all()
    assert min(map(np.min, seen["parts"].values())) >= 0
    if fleet.get("schedule") and workload is GSP:
        assert result.totals["waterfall"]["lost"] > 0


@pytest.mark.parametrize("workload", ["gsp_default", "sharegpt", "mooncake", "weka_small"])
@pytest.mark.parametrize(
    ("fleet", "signals"),
    [
        ({}, {"routers": 2}),
        ({"page_size": 16, "schedule": (FleetEvent(20.0, 1, "fail"), FleetEvent(40.0, 1, "recover"))}, {"routers": 3}),
        ({"page_size": 16, "engine": "vllm-0.33"}, {"observability": "events", "event_delay_s": 0.5}),
    ],
    ids=["plain", "faults, routers, pages", "vllm"],
)
def test_waterfall__sums_to_the_prompt_tokens_on_the_zoo(zoo_source, workload, fleet, signals):
    config = ClusterConfig(**{"workers": 4, "capacity_tokens": 100_000, **fleet})
    signals = SignalsConfig(**signals)
    eviction = "lru" if "engine" in fleet else "rlt"
    result = run(make_cell(zoo_source(workload), config, "cache_aware", eviction, signals=signals), 0)
    done, tokens = result.records[result.records["status"] == DONE], result.totals["waterfall"]
    assert sum(tokens[name] for name in PARTS) == done["prompt_tokens"].sum()
    assert tokens["hit"] == done["hit_tokens"].sum() and min(tokens.values()) >= 0
    assert 0 < tokens["believed"] <= done["prompt_tokens"].sum()


@pytest.fixture
def zoo_source():
    from kvgym.errors import WorkloadError
    from kvgym.logs.rows import locate

    def load(name: str) -> Any:
        source = resolve_workload(name)
        try:
            if path := getattr(source, "path", None):
                locate(path)
        except WorkloadError as error:
            pytest.skip(str(error))
        return source

    return load
