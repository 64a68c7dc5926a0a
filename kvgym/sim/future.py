"""What an oracle is told: when each forest node will be used next, for one worker whose order of requests is known.

A row of numbers in ``c.memory[w]`` of policies with ``oracle=True``: for each forest node where its next use stands,
then per node the numbers of the requests that use it (0 is the first that the worker admits), ended by infinity.
"""

from __future__ import annotations

import numpy as np

from kvgym.errors import ConfigError
from kvgym.jit import i64, njit
from kvgym.sim.state import Cache
from kvgym.workloads.base import Workload


def future_uses(workload: Workload, workers: int, changes: int) -> np.ndarray:
    """Return the row for `workload`.

    Raises:
        ConfigError: the order in which requests are admitted depends on more than the workload.
    """
    if workers != 1 or changes:
        raise ConfigError(f"an oracle needs one worker that never fails, got {workers} with {changes} changes")
    nodes = workload.forest.nodes
    at = workload.requests["prompt_node"][_order(workload)].astype(np.int64)
    number, users, who = np.arange(len(at)), [], []
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


def _order(workload: Workload) -> np.ndarray:
    """Return the requests in the order in which one worker admits them: first come, first served."""
    heads, following = workload.heads, workload.requests["next"]
    if workload.clients == 0 and (following < 0).all():
        return heads
    if workload.clients != 1:
        raise ConfigError(
            "an oracle needs requests whose order is known beforehand: recorded arrivals, or one client; here a "
            "request follows the answer to another"
        )
    order = []
    for head in heads.tolist():
        while head >= 0:
            order.append(head)
            head = int(following[head])
    return np.array(order)


@njit()
def next_use(c: Cache, w: int, node: int) -> float:
    """Number of the next request of worker w that uses a forest node; infinity: none."""
    row, admitted = c.memory[w], c.workers[w].admitted
    at = i64(row[node])
    while row[at] < admitted:
        at += 1
    row[node] = at
    return row[at]
