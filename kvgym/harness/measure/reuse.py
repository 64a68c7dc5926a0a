"""Measures what a workload could reuse: hits of an endless cache and of one LRU cache of any size, exactly.

One worker, one request at a time in order of arrival. The stack distance of a token is how many other tokens were used
since its last use, itself counted; an LRU cache of C tokens that gives up deep tokens before the shallower ones of the
same use (as a radix cache does) hits just the tokens whose distance is at most C. A prompt's answer is used with it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from kvgym.jit.door import i64, njit
from kvgym.workloads.base import Workload

_CAPACITIES = np.array([base * 10**power for power in range(3, 9) for base in (1, 2, 5)], np.int64)
_DEPTHS = (16, 128, 512, 1024, 2048, 4096, 8192, 16384, 32768)
_BUSIEST = 5


@dataclass(frozen=True)
class Reuse:
    """What could be reused of a workload.

    Attributes:
        prompt_tokens: of all requests.
        ceiling: share of them that an endless cache hits.
        capacities: sizes of one LRU cache, tokens; those beyond the first that holds everything are left out.
        hit_rates: its hit rate at each of these.
        distinct_tokens: what an endless cache would hold in the end.
        depths: share of prompts that share at least so many tokens with an earlier one: {tokens: share}.
        busiest: the prefixes that save most: (tokens, requests that begin with them).
    """

    prompt_tokens: int
    ceiling: float
    capacities: np.ndarray
    hit_rates: np.ndarray
    distinct_tokens: int
    depths: dict[int, float]
    busiest: list[tuple[int, int]]


def measure_reuse(load: Workload) -> Reuse:
    """Measure a workload; time grows with requests x depth of the forest x logarithm of the requests."""
    order = np.argsort(load.requests["arrival_s"], kind="stable")
    if load.clients or (load.requests["next"] >= 0).any():
        order = np.lexsort((load.requests["turn"], load.requests["session"], load.requests["turn"]))
    rows = load.requests[order]
    parents = np.ascontiguousarray(load.forest.nodes["parent"], np.int64)
    ends = np.ascontiguousarray(load.forest.nodes["end"], np.int64)
    prompts = np.ascontiguousarray(rows["prompt_node"], np.int64)
    answers = np.where(rows["output_node"] >= 0, rows["output_node"], rows["prompt_node"]).astype(np.int64)
    tokens = np.ascontiguousarray(rows["prompt_tokens"], np.int64)
    capacities = np.append(_CAPACITIES, np.iinfo(np.int64).max // 2)
    hits, shared = np.zeros(len(capacities), np.int64), np.zeros(len(rows), np.int64)
    weights, last = np.zeros(len(rows) + 2, np.int64), np.zeros(len(parents), np.int64)
    used = np.zeros(len(parents), np.int64)
    _distances(parents, ends, prompts, answers, tokens, capacities, hits, shared, weights, last, used)
    total = int(tokens.sum())
    distinct = int((ends - ends[parents])[last > 0].sum())
    kept = int(np.searchsorted(capacities[:-1], distinct)) + 1
    return Reuse(
        total,
        float(hits[-1] / total),
        capacities[:-1][:kept],
        hits[:-1][:kept] / total,
        distinct,
        {depth: float((shared >= depth).mean()) for depth in _DEPTHS if (shared >= depth).any()},
        _busy(parents, ends, used),
    )


def _busy(parents: np.ndarray, ends: np.ndarray, used: np.ndarray) -> list[tuple[int, int]]:
    """Return the prefixes that save most, none of them a part of another one in the list."""
    saved = ends * np.maximum(used - 1, 0)
    found: list[tuple[int, int]] = []
    taken: list[int] = []
    for node in np.argsort(-saved)[: 50 * _BUSIEST]:
        if saved[node] <= 0 or len(found) == _BUSIEST:
            break
        above = set()
        at = int(node)
        while at > 0:
            above.add(at)
            at = int(parents[at])
        if not any(other in above or _is_above(parents, int(node), other) for other in taken):
            taken.append(int(node))
            found.append((int(ends[node]), int(used[node])))
    return found


def _is_above(parents: np.ndarray, upper: int, lower: int) -> bool:
    while lower > upper:
        lower = int(parents[lower])
    return lower == upper


@njit()
def _sum_up_to(weights: np.ndarray, time: int) -> int:
    found = i64(0)
    while time > 0:
        found += weights[time]
        time -= time & -time
    return found


@njit()
def _add(weights: np.ndarray, time: int, size: int) -> None:
    while time < len(weights):
        weights[time] += size
        time += time & -time


@njit(
    "void(int64[::1], int64[::1], int64[::1], int64[::1], int64[::1], int64[::1], int64[::1], int64[::1], int64[::1],"
    " int64[::1], int64[::1])"
)
def _distances(
    parents: np.ndarray, ends: np.ndarray, prompts: np.ndarray, answers: np.ndarray, tokens: np.ndarray,
    capacities: np.ndarray, hits: np.ndarray, shared: np.ndarray, weights: np.ndarray, last: np.ndarray,
    used: np.ndarray,
) -> None:  # fmt: skip
    """Fill `hits` per capacity, `shared` tokens per request, and how many requests have `used` each node.

    `weights` is a Fenwick tree over times 1..requests: tokens by the time of their last use; `last` is that time per
    node. From leaf to root the times of a path never fall, so that its nodes of one time are neighbours.
    """
    total = 0
    for r in range(len(prompts)):
        node = prompts[r]
        while node > 0 and last[node] == 0:
            node = parents[node]
        shared[r] = min(ends[node], tokens[r] - 1)
        while node > 0:
            time = last[node]
            top = node
            while parents[top] > 0 and last[parents[top]] == time:
                top = parents[top]
            newer = total - _sum_up_to(weights, time)
            begin = ends[parents[top]]
            length = min(ends[node], tokens[r] - 1) - begin
            for k in range(len(capacities)):
                hits[k] += max(i64(0), min(length, capacities[k] - newer))
            node = parents[top]
        node = prompts[r]
        while node > 0:
            used[node] += 1
            node = parents[node]
        node = answers[r]
        while node > 0:
            size = ends[node] - ends[parents[node]]
            if last[node] > 0:
                _add(weights, last[node], -size)
            else:
                total += size
            _add(weights, r + 1, size)
            last[node] = r + 1
            node = parents[node]
