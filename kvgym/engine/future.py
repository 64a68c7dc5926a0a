"""An oracle is told when each forest node will be used next, for one worker whose order of requests is known.

A row of numbers in ``c.memory[w]`` of policies with ``oracle=True``: for each forest node where its next use stands,
then per node the numbers of the requests that use it (0 is the first that the worker admits), ended by infinity.
"""

from __future__ import annotations

import numpy as np

from kvgym.engine.pages import INPUT_MARGIN
from kvgym.engine.state import Cache
from kvgym.errors import ConfigError
from kvgym.jit.door import i64, njit
from kvgym.workloads.base import Workload


def future_uses(
    workload: Workload, pool: np.ndarray, changes: np.ndarray | None, network_s: np.ndarray | None, allowed: bool
) -> np.ndarray:
    """Return the row for `workload`.

    Args:
        workload: what will be served.
        pool: KV pool tokens per worker, shape (workers,).
        changes: of the fleet; none: nothing fails.
        network_s: seconds one way, shape (regions, workers); none: no delay.
        allowed: whether the caller allows an oracle.

    Raises:
        ConfigError: it does not, or the order in which requests are admitted depends on more than the workload.
    """
    if not allowed:
        raise ConfigError(
            "this eviction policy sees the future: it runs in a comparison with `bounds: true`, or where oracle=True "
            "is given"
        )
    if len(pool) != 1 or (changes is not None and len(changes)) or (network_s is not None and len(network_s) > 1):
        raise ConfigError("an eviction policy that sees the future needs one worker that never fails, and one region")
    nodes, order = workload.forest.nodes, admission_order(workload)
    at = workload.requests["prompt_node"][order[_fits(workload, int(pool[0]))[order]]].astype(np.int64)
    none = np.zeros(0, np.int64)
    number, users, who = np.arange(len(at)), [none], [none]
    while len(at):
        users.append(at)
        who.append(number)
        parent = nodes["parent"][at].astype(np.int64)
        at, number = parent[parent > 0], number[parent > 0]
    node, number = np.concatenate(users), np.concatenate(who)
    by_node = np.lexsort((number, node))
    node, number = node[by_node], number[by_node]
    counts = np.bincount(node, minlength=len(nodes)) + 1
    row = np.full(len(nodes) + int(counts.sum()), np.inf)
    row[: len(nodes)] = len(nodes) + np.cumsum(counts) - counts
    row[np.arange(len(node)) + len(nodes) + node] = number
    return row


def admission_order(workload: Workload) -> np.ndarray:
    """Return the requests in the order in which one worker admits them: first come, first served.

    Raises:
        ConfigError: it depends on when answers are finished.
    """
    heads, following = workload.heads, workload.requests["next"]
    if workload.clients == 0 and (following < 0).all():
        return heads
    if workload.clients != 1:
        raise ConfigError(
            f"an oracle needs requests whose order is known beforehand (recorded arrivals, or one client); in "
            f"{workload.name!r} requests follow the answers to others"
        )
    order = []
    for head in heads.tolist():
        while head >= 0:
            order.append(head)
            head = int(following[head])
    return np.array(order)


def _fits(workload: Workload, capacity: int) -> np.ndarray:
    """Return which requests are not rejected at once (`kvgym.engine.pages.clipped_new_tokens`)."""
    page = workload.page_size
    prompt = workload.requests["prompt_tokens"].astype(np.int64)
    return (prompt <= capacity - INPUT_MARGIN) & (-(-prompt // page) * page + page + 1 < capacity)


@njit()
def next_use(c: Cache, w: int, node: int) -> float:
    """Number of the next request of worker w that uses a forest node; infinity: none."""
    row, admitted = c.memory[w], c.workers[w].admitted
    at = i64(row[node])
    while row[at] < admitted:
        at += 1
    row[node] = at
    return row[at]
