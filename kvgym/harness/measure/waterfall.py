"""Says where a run's prompt tokens went: hit, or missed for one of eight reasons that sum to all of them exactly.

Every token of a request's prompt that was no hit gets the first of these reasons that holds for it. *Routing* is the
moment at which the request was sent for the last time, *admission* when its worker looked it up in the cache; a prompt
is *computed* when its first token is there, an answer when it has ended, but for its last token, which never is.

- new: no prompt sent before routing and no answer ended by then begins like this up to here, and nothing that was
  computed by admission does.
- rounding: no cache could have given it: the last token of a prompt is always computed, only whole pages are kept, the
  last token of an answer has no KV entry.
- late: of what came after this request's routing; computed somewhere before its admission.
- routing: at routing another worker held it, and the chosen one did not (really, whatever the router believed).
- eviction: the chosen worker has had it since it came up, and not any more at admission.
- lost: it was sent to a worker that has failed since, and nobody alive has it.
- gone: other workers have computed it, and by routing had evicted it.
- in flight: it was sent somewhere before, but not yet computed at routing: two workers do the same work.

The unit is the token: sharing is read from the workload at page size 1, so that a page which two prompts share in part
counts as rounding. Only answered requests count, and all of them: a warm-up leaves none out.
"""

from __future__ import annotations

from array import array
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from kvgym.config.schedule import FleetEvent
from kvgym.harness.measure.statistics import spread
from kvgym.jit.door import as_records
from kvgym.types import DONE, REJECTED, Decision
from kvgym.workloads.base import Workload

PARTS: dict[str, str] = {
    "new": "never seen before",
    "late": "seen, but only after this request was routed",
    "in_flight": "in flight at that moment, computed twice",
    "routing": "held by another worker (routing)",
    "eviction": "held by the chosen worker and evicted (eviction)",
    "gone": "held by other workers once, and evicted there",
    "rounding": "lost to page or last-token rounding",
    "lost": "lost with a failed worker",
    "hit": "hit",
}
"""Part of the prompt tokens -> what it is, from all of them down to the hits."""


Triple = tuple[float | None, float | None, float | None]


class Course:
    """What is noted whenever a run sends a request: the truth that its records do not hold.

    Args:
        requests: number of requests of the workload.
    """

    def __init__(self, requests: int) -> None:
        self.here = np.zeros(requests, np.int64)  # tokens that the chosen worker held at the last routing
        self.elsewhere = np.zeros(requests, np.int64)  # the most that another one held then
        self.believed = np.full(requests, -1, np.int64)  # what the router took the chosen worker to hold; -1: no idea
        self.sent, self.workers, self.times_s = array("q"), array("q"), array("d")  # one entry per route

    def note(self, decision: Decision, worker: int, held: np.ndarray) -> None:
        """Take note of a route; `held` are the tokens of the prompt that each worker really holds, shape (workers,)."""
        request = decision.request
        self.here[request] = held[worker]
        self.elsewhere[request] = max(held[:worker].max(initial=0), held[worker + 1 :].max(initial=0))
        if decision.hit_tokens is not None:
            self.believed[request] = decision.hit_tokens[worker]
        self.sent.append(request)
        self.workers.append(worker)
        self.times_s.append(decision.time_s)


class Served(NamedTuple):
    """How a run was served, besides its records and its course."""

    page_size: int  # of the caches, tokens
    schedule: Sequence[FleetEvent]
    delay_s: np.ndarray  # from the worker to the client of each RECORD row, shape (rows,)


def waterfall(workload: Workload, records: np.ndarray, course: Course, served: Served) -> dict[str, int]:
    """Return the tokens of each of `PARTS`; ``believed`` beside them, if the router believed anything.

    Args:
        workload: what was served, with its forest at page size 1.
        records: RECORD rows of all requests, any order.
        course: what was noted while they were sent.
        served: by what.
    """
    done = records[records["status"] == DONE]
    parts = tokens_by_part(workload, records, course, served)
    total = {name: int(tokens.sum()) for name, tokens in parts.items()}
    believed = course.believed[done["request"]]
    return total | ({"believed": int(believed.sum())} if len(believed) and believed.min() >= 0 else {})


def mean_shares(runs: Sequence[Mapping[str, int] | None]) -> dict[str, Triple]:
    """Return part -> (mean, smallest, largest) share of the prompt tokens over runs; empty if one says nothing."""
    known = [run for run in runs if run]
    if not known or len(known) < len(runs):
        return {}
    totals = [max(sum(run[name] for name in PARTS), 1) for run in known]
    names = [*PARTS, *(("believed",) if all("believed" in run for run in known) else ())]
    return {name: spread([run[name] / total for run, total in zip(known, totals, strict=True)]) for name in names}


def tokens_by_part(workload: Workload, records: np.ndarray, course: Course, served: Served) -> dict[str, np.ndarray]:
    """Return the tokens of each of `PARTS` for each answered request, in the order of `records`; as `waterfall`."""
    past = _Past(workload, records, course, served)
    done, page = past.done, served.page_size
    prompt, hit = done["prompt_tokens"].astype(np.int64), done["hit_tokens"].astype(np.int64)
    useful = (prompt - 1) // page * page
    here, elsewhere = course.here[done["request"]], course.elsewhere[done["request"]]
    able, seen = past.sent_before()
    able = np.maximum.reduce([able, here, elsewhere])
    later = np.maximum(able, past.computed_by_admission())
    # Ends of nested prefixes, from the hits outwards; everything beyond `top` was never seen.
    bottom = np.maximum(hit, np.minimum(able // page * page, useful))
    middle = np.maximum(bottom, np.minimum(later // page * page, useful))
    top = np.maximum.reduce([middle, later, np.minimum(seen, prompt)])
    parts = {"new": prompt - top, "rounding": top - middle, "late": middle - bottom, "hit": hit}
    ends = (
        ("eviction", here),
        ("routing", elsewhere),
        ("eviction", past.on_chosen_worker()),
        ("lost", past.lost_before()),
        ("gone", past.computed_by_routing()),
        ("in_flight", bottom),
    )
    begin = hit
    for name, end in ends:
        end = np.clip(end, begin, bottom)
        parts[name] = parts.get(name, 0) + end - begin
        begin = end
    return {name: parts[name] for name in PARTS}


class _Past:
    """What had happened to the prompts of a run's requests, and by when, in numbers of decisions.

    Args: as of `waterfall`.
    """

    def __init__(self, workload: Workload, records: np.ndarray, course: Course, served: Served) -> None:
        self.nodes = as_records(np.ascontiguousarray(workload.forest.nodes))
        self.requests, self.served = workload.requests, served
        answered = records["status"] == DONE
        self.done, delay_s = records[answered], np.broadcast_to(served.delay_s, len(records))[answered]
        self.computed_s = self.done["first_token_s"] - delay_s
        self.ended_s = self.done["finish_s"] - delay_s
        self.sent, self.worker = np.array(course.sent, np.int64), np.array(course.workers, np.int64)
        self.time_s = np.maximum.accumulate(np.array(course.times_s))
        self.last = np.full(len(self.requests), -1, np.int64)
        self.last[self.sent] = np.arange(len(self.sent))  # of equal indices the last one stays
        self.own = self.last[self.done["request"]]  # decision that sent each answered request
        self.node = self.requests["prompt_node"][self.done["request"]].astype(np.int64)
        self.never = np.zeros(len(self.requests), bool)
        self.never[records["request"][records["status"] == REJECTED]] = True

    def _when(self, time_s: np.ndarray) -> np.ndarray:
        """Return the first decision that is not before each time."""
        return np.searchsorted(self.time_s, time_s, side="left")

    def _prompts(self, keys: np.ndarray, requests: np.ndarray) -> np.ndarray:
        own = self.requests[requests]
        return np.column_stack([keys, own["prompt_node"], own["prompt_tokens"]]).astype(np.int64)

    def _answers(self, keys: np.ndarray, which: np.ndarray) -> np.ndarray:
        """Return events of the answers of some rows of `done`, as far as they are computed."""
        rows, own = self.done[which], self.requests[self.done["request"][which]]
        limit = rows["prompt_tokens"].astype(np.int64) + rows["output_tokens"] - 1
        events = np.column_stack([keys, own["output_node"], limit]).astype(np.int64)
        return events[own["output_node"] >= 0]

    def _covered(self, events: np.ndarray) -> np.ndarray:
        """Return the tokens of each answered request's prompt that `events` cover by its routing."""
        return _Cover(self.nodes).add(events).depths(self.own, self.node)

    def sent_before(self) -> tuple[np.ndarray, np.ndarray]:
        """Return what other prompts and ended answers cover by routing: (what can be computed, what was seen)."""
        sends = np.flatnonzero(~self.never[self.sent])
        prompts = self._prompts(sends + 1, self.sent[sends])
        answers = self._answers(self._when(self.ended_s), np.arange(len(self.done)))
        able = self._covered(np.concatenate([prompts, answers]))
        answers[:, 2] += 1
        return able, self._covered(np.concatenate([prompts, answers]))

    def computed(self, by_s: np.ndarray) -> np.ndarray:
        """Return what had been computed anywhere by a time for each answered request, seconds."""
        times_s = np.unique(np.concatenate([self.computed_s, self.ended_s]))
        prompts = self._prompts(np.searchsorted(times_s, self.computed_s), self.done["request"])
        answers = self._answers(np.searchsorted(times_s, self.ended_s), np.arange(len(self.done)))
        keys = np.searchsorted(times_s, by_s, side="right") - 1
        return _Cover(self.nodes).add(np.concatenate([prompts, answers])).depths(keys, self.node)

    def computed_by_routing(self) -> np.ndarray:
        """Return what had been computed anywhere when each request was sent."""
        return self.computed(self.time_s[self.own])

    def computed_by_admission(self) -> np.ndarray:
        """Return what others had computed anywhere when each request was admitted."""
        return self.computed(self.done["admitted_s"])

    def lost_before(self) -> np.ndarray:
        """Return what had been sent by routing to workers that had failed since."""
        events = [np.zeros((0, 3), np.int64)]
        for worker, fails_s in self._failures().items():
            mine = np.flatnonzero((self.worker == worker) & ~self.never[self.sent])
            following = np.searchsorted(fails_s, self.time_s[mine], side="right")
            hit = following < len(fails_s)
            events.append(self._prompts(self._when(fails_s[following[hit]]), self.sent[mine[hit]]))
            rows = np.flatnonzero(self.done["worker"] == worker)
            following = np.searchsorted(fails_s, self.ended_s[rows], side="right")
            hit = following < len(fails_s)
            events.append(self._answers(self._when(fails_s[following[hit]]), rows[hit]))
        return self._covered(np.concatenate(events))

    def on_chosen_worker(self) -> np.ndarray:
        """Return what the chosen worker had computed by admission, since it came up."""
        failures, cover = self._failures(), _Cover(self.nodes)
        life = np.zeros(len(self.done), np.int64)
        for worker, fails_s in failures.items():
            rows = self.done["worker"] == worker
            life[rows] = np.searchsorted(fails_s, self.computed_s[rows], side="right")
        order = np.lexsort((life, self.done["worker"]))
        out = np.zeros(len(self.done), np.int64)
        changes = np.flatnonzero(np.diff(self.done["worker"][order]) | np.diff(life[order])) + 1
        for rows in np.split(order, changes):
            times_s = np.unique(np.concatenate([self.computed_s[rows], self.ended_s[rows]]))
            prompts = self._prompts(np.searchsorted(times_s, self.computed_s[rows]), self.done["request"][rows])
            answers = self._answers(np.searchsorted(times_s, self.ended_s[rows]), rows)
            by = np.searchsorted(times_s, self.done["admitted_s"][rows], side="right") - 1
            out[rows] = cover.again().add(np.concatenate([prompts, answers])).depths(by, self.node[rows])
        return out

    def _failures(self) -> Mapping[int, np.ndarray]:
        found: dict[int, list[float]] = {}
        for entry in self.served.schedule:
            if entry.event == "fail":
                found.setdefault(entry.worker, []).append(entry.time_s)
        return {worker: np.sort(times_s) for worker, times_s in found.items()}


class _Cover:
    """First touches of forest nodes, used again and again."""

    def __init__(self, nodes: np.ndarray) -> None:
        self._nodes, self._base, self._next = nodes, 0, 0
        self._when, self._whole = np.full(len(nodes), -1, np.int64), np.full(len(nodes), -1, np.int64)
        self._part = np.zeros(len(nodes), np.int64)

    def again(self) -> _Cover:
        """Forget all events."""
        self._base = self._next
        return self

    def add(self, events: np.ndarray) -> _Cover:
        """Note (key, node, limit) events, keys from 0, in any order."""
        from kvgym.engine.coverage import touch

        ordered = np.ascontiguousarray(events[np.argsort(events[:, 0], kind="stable")])
        ordered[:, 0] += self._base
        touch(self._nodes, ordered, self._base, self._when, self._whole, self._part)
        self._next = self._base + int(events[:, 0].max(initial=-1)) + 1
        return self

    def depths(self, keys: np.ndarray, nodes: np.ndarray) -> np.ndarray:
        """Return the tokens of each node's path that events with at most its key cover."""
        from kvgym.engine.coverage import depths

        out = np.zeros(len(keys), np.int64)
        queries = np.ascontiguousarray(np.column_stack([keys + self._base, nodes]).astype(np.int64))
        depths(self._nodes, queries, self._base, self._when, self._whole, self._part, out)
        return out
