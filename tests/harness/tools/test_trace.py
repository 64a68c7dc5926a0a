from __future__ import annotations

import json
from collections import defaultdict

import numpy as np
import pytest

from kvgym.config.cluster import ClusterConfig
from kvgym.errors import ResultsError
from kvgym.harness.compare.cell import Cell
from kvgym.harness.compare.run import run
from kvgym.harness.measure.samples import Samples
from kvgym.harness.tools.trace import trace_events, write_trace
from kvgym.types import DONE, FAILED, RECORD, REJECTED
from kvgym.workloads.gsp import GSP

BY_HAND = [  # request, worker, status, arrival, admitted, first token, finish
    (0, 0, DONE, 0.0, 0.5, 1.0, 4.0),
    (1, 0, DONE, 1.0, 2.0, 3.0, 5.0),
    (2, 0, DONE, 4.0, 4.0, 4.5, 6.0),
    (3, 1, REJECTED, 2.0, -1.0, -1.0, 2.0),
    (4, 1, FAILED, 2.5, 3.0, -1.0, 3.5),
    (5, -1, FAILED, 3.0, -1.0, -1.0, 7.0),
]


def by_hand() -> np.ndarray:
    records = np.zeros(len(BY_HAND), RECORD)
    names = ("request", "worker", "status", "arrival_s", "admitted_s", "first_token_s", "finish_s")
    for name, column in zip(names, zip(*BY_HAND, strict=True), strict=True):
        records[name] = column
    return records


def samples() -> Samples:
    use = np.array([[0.0, 0.25], [0.5, 0.25], [1.0, 0.0]], np.float32)
    return Samples(np.array([0.0, 2.0, 7.0]), use, np.array([[0, 0], [2, 0], [2, 1]]))


def check(events: list[dict]) -> None:
    """Assert what the trace event format asks for, and that slices of one lane follow each other."""
    lanes = defaultdict(list)
    for event in events:
        assert event["ph"] in "XMCi" and isinstance(event["name"], str) and isinstance(event["pid"], int)
        if event["ph"] != "M":
            assert event["ts"] >= 0
        if event["ph"] == "X":
            assert event["dur"] >= 0 and isinstance(event["tid"], int)
            lanes[event["pid"], event["tid"]].append((event["ts"], event["ts"] + event["dur"]))
        if event["ph"] == "C":
            assert all(isinstance(value, int | float) and value >= 0 for value in event["args"].values())
        if event["ph"] == "i":
            assert event["s"] in ("t", "p") and isinstance(event["tid"], int)
    named = {(event["pid"], event["tid"]) for event in events if event["name"] == "thread_name"}
    assert set(lanes) <= named
    for slices in lanes.values():
        ends = [end for _, end in slices]
        assert all(start >= end - 1e-6 for (start, _), end in zip(slices[1:], ends, strict=False))


def test_trace__by_hand():
    events = list(trace_events(by_hand(), samples()))
    check(events)
    names = {event["pid"]: event["args"]["name"] for event in events if event["name"] == "process_name"}
    assert names == {0: "no worker", 1: "worker 0", 2: "worker 1"}
    phases = [(e["args"]["request"], e["tid"], e["name"], e["ts"], e["dur"]) for e in events if e["ph"] == "X"]
    assert [phase for phase in phases if phase[0] in (0, 2)] == [
        (0, 1, "queued", 0.0, 5e5),
        (0, 1, "prefill", 5e5, 5e5),
        (0, 1, "decode", 1e6, 3e6),
        (2, 1, "queued", 4e6, 0.0),
        (2, 1, "prefill", 4e6, 5e5),
        (2, 1, "decode", 4.5e6, 1.5e6),
    ]
    assert [phase[1] for phase in phases if phase[0] == 1] == [2, 2, 2], "overlapping requests have lanes of their own"
    assert [phase[2:] for phase in phases if phase[0] == 4] == [("queued", 2.5e6, 5e5), ("prefill", 3e6, 5e5)]
    ends = [(e["name"], e["pid"], e["ts"]) for e in events if e["ph"] == "i" and e["name"] != "retractions"]
    assert ends == [("failed", 0, 7e6), ("rejected", 2, 2e6), ("failed", 2, 3.5e6)]


def test_trace__counters_and_retractions():
    events = list(trace_events(by_hand(), samples()))
    counts = [(e["ts"], e["args"]["queued"], e["args"]["running"]) for e in events if e["name"] == "requests"]
    worker_0 = counts[2:-4]
    assert worker_0[:4] == [(0.0, 1, 0), (5e5, 0, 1), (1e6, 1, 1), (2e6, 0, 2)]
    assert worker_0[4:] == [(4e6, 0, 2), (5e6, 0, 1), (6e6, 0, 0)]
    use = [e["args"]["percent"] for e in events if e["name"] == "KV use"]
    assert use == [0.0, 50.0, 100.0, 25.0, 25.0, 0.0]
    retracted = [(e["pid"], e["ts"], e["args"]["requests"]) for e in events if e["name"] == "retractions"]
    assert retracted == [(1, 2e6, 2), (2, 7e6, 1)]


def test_trace__of_a_run_is_valid_json_and_complete(tmp_path):
    source = GSP(groups=6, prompts_per_group=4, lens=(64, 128), rate_rps=20.0)
    fleet = ClusterConfig(workers=2, capacity_tokens=1000)
    cell = Cell("gsp", source, "two", fleet, "round_robin", "round_robin", {}, "lru", {})
    result = run(cell, seed=0)
    count = write_trace(tmp_path / "t.json", result.records, result.samples)
    trace = json.loads((tmp_path / "t.json").read_text())
    assert len(trace["traceEvents"]) == count
    check(trace["traceEvents"])
    phases = [(e["args"]["request"], e["name"]) for e in trace["traceEvents"] if e["ph"] == "X"]
    assert sorted(phases) == sorted((r, phase) for r in range(24) for phase in ("queued", "prefill", "decode"))
    whole = sum(e["dur"] for e in trace["traceEvents"] if e["ph"] == "X")
    assert whole == pytest.approx(1e6 * (result.records["finish_s"] - result.records["arrival_s"]).sum(), rel=1e-6)


def test_trace__nothing_ended():
    assert list(trace_events(np.zeros(0, RECORD), None)) == []


def test_write_trace__a_file_that_cannot_be_written(tmp_path):
    with pytest.raises(ResultsError, match=r"cannot write .*t\.json"):
        write_trace(tmp_path / "no" / "t.json", by_hand(), None)
