"""Writes one run in Chrome's trace event format, which Perfetto and chrome://tracing show on a time line.

One process per worker, plus one for requests that never got a worker. The phases of a request (queued, prefill, decode)
are complete events ("X") in a lane, a thread that holds one request at a time. Counters ("C"): running and queued
requests at every change, KV use at every load sample. Instants ("i"): rejected and failed requests, and retractions at
the first load sample that has seen them.
"""

from __future__ import annotations

import heapq
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from kvgym.harness.measure.samples import Samples
from kvgym.records import replacing
from kvgym.types import DONE, FAILED, REJECTED

_ENDS = {REJECTED: "rejected", FAILED: "failed"}
Event = dict[str, Any]


def write_trace(path: Path, records: np.ndarray, samples: Samples | None) -> int:
    """Write a run to the JSON file `path`, which appears whole or not at all; return the number of events.

    Args:
        path: the file.
        records: RECORD rows.
        samples: load of the workers; none: no KV use and no retractions.

    Raises:
        ResultsError: the file cannot be written.
    """
    count = 0
    with replacing(path) as temporary, temporary.open("w", encoding="ascii") as file:
        file.write('{"displayTimeUnit": "ms", "traceEvents": [')
        for count, event in enumerate(trace_events(records, samples), 1):
            file.write(("\n" if count == 1 else ",\n") + json.dumps(event))
        file.write("\n]}\n")
    return count


def trace_events(records: np.ndarray, samples: Samples | None) -> Iterator[Event]:
    """Yield the events of a run; process 0 is "no worker", process w + 1 is worker w; times are microseconds."""
    fleet = 0 if samples is None else samples.kv_use.shape[1]
    for worker in range(-1, max(int(records["worker"].max(initial=-1)) + 1, fleet)):
        own = records[records["worker"] == worker]
        if worker < 0 and not len(own):
            continue
        name = f"worker {worker}" if worker >= 0 else "no worker"
        yield {"ph": "M", "name": "process_name", "pid": worker + 1, "args": {"name": name}}
        yield {"ph": "M", "name": "process_sort_index", "pid": worker + 1, "args": {"sort_index": worker + 1}}
        yield from _requests(own, worker + 1)
        yield from _counts(own, worker + 1)
        if samples is not None and worker >= 0:
            yield from _sampled(samples, worker)


def _requests(records: np.ndarray, pid: int) -> Iterator[Event]:
    """Yield slices and ends of the requests of one process."""
    free: list[int] = []  # lanes that hold nobody, lowest first
    busy: list[tuple[int, int]] = []  # (end in ns, lane)
    lanes = 0
    for record in records[np.lexsort((records["request"], records["arrival_s"]))]:
        start, end = _ns(record["arrival_s"]), _ns(record["finish_s"])
        while busy and busy[0][0] <= start:
            heapq.heappush(free, heapq.heappop(busy)[1])
        if not free:
            lanes += 1
            heapq.heappush(free, lanes)
            yield {"ph": "M", "name": "thread_name", "pid": pid, "tid": lanes, "args": {"name": f"lane {lanes}"}}
        lane = heapq.heappop(free)
        heapq.heappush(busy, (end, lane))
        yield from _phases(record, pid, lane)


def _phases(record: np.ndarray, pid: int, lane: int) -> Iterator[Event]:
    """Yield the phases that a request went through, and how it ended if it was not answered."""
    names = ("request", "session", "turn", "prompt_tokens", "hit_tokens", "output_tokens", "retractions", "attempts")
    place: Event = {"pid": pid, "tid": lane, "cat": "request", "args": {name: int(record[name]) for name in names}}
    end = _ns(record["finish_s"])
    cuts = [_ns(record[name]) for name in ("arrival_s", "admitted_s", "first_token_s") if record[name] >= 0]
    for phase, start, stop in zip(("queued", "prefill", "decode"), cuts, [*cuts[1:], end], strict=False):
        yield {"ph": "X", "name": phase, "ts": start / 1000, "dur": max(stop - start, 0) / 1000, **place}
    if record["status"] != DONE:
        yield {"ph": "i", "name": _ENDS[int(record["status"])], "s": "t", "ts": end / 1000, **place}


def _counts(records: np.ndarray, pid: int) -> Iterator[Event]:
    """Yield the numbers of waiting and running requests at every change."""
    admitted = records["admitted_s"] >= 0
    leave_s = np.where(admitted, records["admitted_s"], records["finish_s"])
    steps = [(records["arrival_s"], 1, 0), (leave_s, -1, 0)]
    steps += [(leave_s[admitted], 0, 1), (records["finish_s"][admitted], 0, -1)]
    times = np.concatenate([_ns(times_s) for times_s, _, _ in steps])
    changes = np.concatenate([np.tile((queued, running), (len(times_s), 1)) for times_s, queued, running in steps])
    moments, where = np.unique(times, return_inverse=True)
    totals = np.zeros((len(moments), 2), np.int64)
    np.add.at(totals, where, changes)
    for moment, (queued, running) in zip(moments, totals.cumsum(axis=0), strict=True):
        args = {"queued": int(queued), "running": int(running)}
        yield {"ph": "C", "name": "requests", "pid": pid, "ts": int(moment) / 1000, "args": args}


def _sampled(samples: Samples, worker: int) -> Iterator[Event]:
    """Yield KV use, and retractions at the sample that first counts them."""
    before = 0
    for time_s, use, total in zip(
        samples.time_s, samples.kv_use[:, worker], samples.retractions[:, worker], strict=True
    ):
        place = {"pid": worker + 1, "ts": int(_ns(time_s)) / 1000}
        yield {"ph": "C", "name": "KV use", "args": {"percent": round(100 * float(use), 2)}, **place}
        if total > before:
            yield {
                "ph": "i",
                "name": "retractions",
                "s": "p",
                "tid": 0,
                "args": {"requests": int(total - before)},
                **place,
            }
        before = total


def _ns(seconds: Any) -> Any:
    """Return whole nanoseconds, so that phases that touch do not overlap by rounding."""
    return np.rint(np.asarray(seconds) * 1e9).astype(np.int64)
