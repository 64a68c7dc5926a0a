"""The offline optimum of prefix hits for a known course of requests keeps what is needed soonest, token by token.

A token is *held* while a request with it in its prompt or answer is in flight. To be a hit of request j without being
held at j's admission, it must stay in the pool from the end of the last request that held it: an interval that takes
one token of room. At no time can the intervals take more room than the pool has beside what is surely in use. Choosing
as many intervals as possible under limits that vary with time is solved by going through time and dropping, whenever
they are too many, those that end last.

Residency is prefix-closed, which the intervals ignore; but whoever needs a token needs its ancestors too, so an
ancestor's next use is never later and the greedy choice never needs to break a prefix.

All functions take the events of one worker in order; kind HOLD: request r has its whole prompt in memory, END: it gives
back everything, ADMIT: it is matched.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from kvgym.forest.forest import NODE
from kvgym.jit.door import i64, njit
from kvgym.jit.entry_points import LENGTHS, MATRIX, records_type, types

HOLD, END, ADMIT = 0, 1, 2
NODES = records_type(NODE)


@njit(types.void(NODES, MATRIX, LENGTHS, LENGTHS, LENGTHS), allocates=True)
def tokens_in_use(nodes: Any, events: np.ndarray, prompt: np.ndarray, steady: np.ndarray, out: np.ndarray) -> None:
    """Write to out[e] how many tokens of prompts are surely in use at event e: the whole prompts of running requests.

    Args:
        nodes: forest NODE records.
        events: (kind, request) rows, shape (events, 2).
        prompt: forest node of each request's prompt.
        steady: 1: the request keeps its memory from HOLD to END, 0: it does not (it is pushed back to the queue).
        out: shape (events,); at HOLD with the request's own prompt, at END still with it.
    """
    users, total = np.zeros(len(nodes), np.int64), i64(0)
    for e in range(len(events)):
        kind, r = events[e, 0], events[e, 1]
        if kind == END:
            out[e] = total
        x = i64(prompt[r]) if kind != ADMIT and steady[r] == 1 else i64(0)
        while x > 0:
            users[x] += 1 if kind == HOLD else -1
            if users[x] == (1 if kind == HOLD else 0):
                total += (i64(nodes[x].end) - i64(nodes[x].start)) * (1 if kind == HOLD else -1)
            x = i64(nodes[x].parent)
        if kind != END:
            out[e] = total


@njit(types.int64(NODES, MATRIX, LENGTHS, LENGTHS, LENGTHS, LENGTHS, MATRIX), allocates=True)
def find_intervals(
    nodes: Any,
    events: np.ndarray,
    prompt: np.ndarray,
    whole: np.ndarray,
    useful: np.ndarray,
    held: np.ndarray,
    out: np.ndarray,
) -> int:
    """Write (start event, end event, tokens) rows to `out`; return how many (they may be more than fit).

    Args:
        nodes: forest NODE records.
        events: (kind, request) rows, shape (events, 2).
        prompt: forest node of each request's prompt.
        whole: forest node of prompt and answer.
        useful: prompt tokens that can be hits.
        held: receives the tokens per request that are held by others at its admission, zero before.
        out: shape (any, 3).
    """
    users, last = np.zeros(len(nodes), np.int64), np.full(len(nodes), -1, np.int64)
    count = i64(0)
    for e in range(len(events)):
        kind, r = events[e, 0], events[e, 1]
        if kind == ADMIT:
            x = i64(prompt[r])
            while x > 0:
                tokens = min(i64(nodes[x].end), useful[r]) - i64(nodes[x].start)
                if tokens > 0 and users[x] > 0:
                    held[r] += tokens
                elif tokens > 0 and last[x] >= 0:
                    if count > 0 and count <= len(out) and out[count - 1, 0] == last[x] and out[count - 1, 1] == e:
                        out[count - 1, 2] += tokens
                    else:
                        if count < len(out):
                            out[count, 0], out[count, 1], out[count, 2] = last[x], e, tokens
                        count += 1
                x = i64(nodes[x].parent)
        if kind != HOLD:
            x = i64(whole[r])
            while x > 0:
                users[x] += 1 if kind == ADMIT else -1
                if kind == END and users[x] == 0:
                    last[x] = e
                x = i64(nodes[x].parent)
    return count


@njit()
def push(heap: np.ndarray, n: int, key: int) -> int:
    """Add a key to the heap (largest first) of n keys; return n + 1."""
    i = n
    while i > 0 and heap[(i - 1) >> 1] < key:
        heap[i] = heap[(i - 1) >> 1]
        i = (i - 1) >> 1
    heap[i] = key
    return n + 1


@njit()
def pop(heap: np.ndarray, n: int) -> int:
    """Remove the largest of n keys; return n - 1."""
    n -= 1
    key, i = heap[n], i64(0)
    while 2 * i + 1 < n:
        down = 2 * i + 1
        if down + 1 < n and heap[down + 1] > heap[down]:
            down += 1
        if heap[down] <= key:
            break
        heap[i] = heap[down]
        i = down
    heap[i] = key
    return n


@njit(types.void(MATRIX, LENGTHS, MATRIX, types.int64, LENGTHS), allocates=True)
def most_hits(events: np.ndarray, room: np.ndarray, intervals: np.ndarray, capacity: int, hits: np.ndarray) -> None:
    """Add to hits[r] the tokens of intervals that end at r's admission in the best choice.

    Args:
        events: (kind, request) rows.
        room: tokens that intervals may take at each event (before what it starts or ends), shape (events,).
        intervals: (start event, end event, tokens) rows, sorted by start.
        capacity: tokens that they may take at any time.
        hits: per request.
    """
    kept = np.zeros(len(events), np.int64)
    heap, n = np.zeros(len(intervals) + 1, np.int64), i64(0)
    load, at = i64(0), i64(0)
    for e in range(len(events)):
        for after in range(2):
            limit = capacity if after == 1 else room[e]
            while load > limit:
                end = heap[0]
                drop = min(kept[end], load - limit)
                kept[end] -= drop
                load -= drop
                if kept[end] == 0:
                    n = pop(heap, n)
            if after == 1:
                break
            if events[e, 0] == ADMIT:
                hits[events[e, 1]] += kept[e]
                load -= kept[e]
                kept[e] = 0
            while at < len(intervals) and intervals[at, 0] == e:
                end = intervals[at, 1]
                if kept[end] == 0:
                    n = push(heap, n, end)
                kept[end] += intervals[at, 2]
                load += intervals[at, 2]
                at += 1
