"""Rows become a Workload: turn numbers, `next` links, session heads and what the client asked for."""

from __future__ import annotations

from typing import Any

import numpy as np

from kvgym.errors import WorkloadError
from kvgym.forest.forest import Forest
from kvgym.workloads.base import Workload


def link_turns(requests: np.ndarray) -> np.ndarray:
    """Fill `turn` and `next` of REQUEST records whose `session` is set and whose turns are in order; return the heads.

    Heads, int32, are sorted by arrival (stable). The other turns' arrival_s, which nobody uses, becomes 0.
    """
    order = np.argsort(requests["session"], kind="stable")
    session = requests["session"][order]
    is_head = np.ones(len(order), bool)
    is_head[1:] = session[1:] != session[:-1]
    position = np.arange(len(order))
    requests["turn"][order] = position - np.maximum.accumulate(np.where(is_head, position, 0))
    requests["next"] = -1
    follows = np.flatnonzero(~is_head)
    requests["next"][order[follows - 1]] = order[follows]
    requests["arrival_s"][order[follows]] = 0.0
    heads = order[is_head]
    return heads[np.argsort(requests["arrival_s"][heads], kind="stable")].astype(np.int32)


def add_own_answers(forest: Forest, requests: np.ndarray) -> None:
    """Give every request whose answer nobody continues a node of its own for it: a server caches answers all the same.

    An answer that does not reach the end of a page needs none: its request keeps the prompt's node.
    """
    alone = np.flatnonzero(requests["output_node"] < 0)
    ends = (requests["prompt_tokens"][alone] + requests["output_tokens"][alone]).astype(np.int64)
    prompt = requests["prompt_node"][alone]
    size = ends // forest.page_size * forest.page_size - forest.nodes["end"][prompt]
    requests["output_node"][alone] = prompt
    needs = np.flatnonzero(size > 0)
    if len(needs):
        chars = np.rint(size[needs] * forest.chars_per_token).astype(np.int64)
        requests["output_node"][alone[needs]] = forest.add_nodes(prompt[needs], size[needs], chars)


def make_workload(
    name: str,
    forest: Forest,
    requests: np.ndarray,
    heads: np.ndarray | None = None,
    *,
    clients: int = 0,
    notes: dict[str, Any],
) -> Workload:
    """Check the lengths, link the turns unless `heads` says that this is done, and return the workload.

    Answers without a node get their own. Requests that ask for nothing in particular (`max_new_tokens` 0) ask for what
    will be generated.
    """
    for field in ("prompt_tokens", "output_tokens"):
        bad = np.flatnonzero(requests[field] < 1)
        if len(bad):
            i = int(bad[0])
            raise WorkloadError(
                f"{name}: {field} must be >= 1, got {requests[field][i]} (request {i}; {len(bad)} in all)"
            )
    if not 0 <= clients < 2**31:
        raise WorkloadError(f"{name}: clients must be 0 (open loop) or a number of closed-loop clients, got {clients}")
    asked = requests["max_new_tokens"]
    requests["max_new_tokens"] = np.where(asked == 0, requests["output_tokens"], asked)
    add_own_answers(forest, requests)
    if heads is None:
        heads = link_turns(requests)
    return Workload(name, forest, requests, heads, clients, forest.block_tokens, notes)
