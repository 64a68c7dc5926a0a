"""No policy could have hit more prompt tokens in a finished run than these bounds on eviction say.

The bound holds for the run's own course: which worker got each request, and when it was admitted, had its prompt in
memory and ended. Of running requests it counts the prompts, not what they have generated so far, nor what the scheduler
keeps free for them, so it may be above what is possible; with one request at a time it is the optimum itself up to a
token per request (`kvgym.engine.offline` has the argument, `belady` plays it).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from kvgym.errors import SimulationError
from kvgym.jit.door import as_records
from kvgym.types import DONE, FAILED
from kvgym.workloads.base import Workload


def hit_bound(workload: Workload, records: np.ndarray, capacities: Sequence[int]) -> int:
    """Return the hit tokens of a finished run that no eviction policy could have exceeded.

    Args:
        workload: what was served.
        records: RECORD rows of all requests, any order.
        capacities: KV pool of each worker, tokens.

    Raises:
        SimulationError: requests were sent more than once, so that the records do not tell what was cached, or took no
            time, so that they do not tell in which order things happened.
    """
    if (records["attempts"] > 1).any() or (records["status"] == FAILED).any():
        raise SimulationError("bounds need a run in which no worker failed: some requests were lost or sent again")
    done = records[records["status"] == DONE]
    if (done["first_token_s"] <= done["admitted_s"]).any():
        raise SimulationError("bounds need steps that take time: some prefills took none beside the time of day")
    page, total = workload.page_size, 0
    for worker, capacity in enumerate(capacities):
        rows = done[done["worker"] == worker]
        if len(rows):
            total += int(optimum(workload, rows, capacity // page * page).sum())
    return total


def optimum(workload: Workload, rows: np.ndarray, capacity: int) -> np.ndarray:
    """Return the hit tokens of each request, shape (len(rows),), in the best choice for one worker.

    Args:
        workload: what was served.
        rows: RECORD rows of the worker's completed requests.
        capacity: KV pool, tokens, whole pages.
    """
    from kvgym.engine.offline import ADMIT, END, HOLD, find_intervals, most_hits, tokens_in_use

    count, requests = len(rows), workload.requests[rows["request"]]
    prompt = requests["prompt_node"].astype(np.int64)
    whole = np.where(requests["output_node"] >= 0, requests["output_node"], prompt).astype(np.int64)
    prompt_tokens = rows["prompt_tokens"].astype(np.int64)
    useful = (prompt_tokens - 1) // workload.page_size * workload.page_size
    # Equal times: prompts are complete, then requests end, then others are admitted, as in the engine.
    kinds = np.repeat(np.array([HOLD, END, ADMIT], np.int64), count)
    order = np.lexsort((kinds, np.concatenate([rows["first_token_s"], rows["finish_s"], rows["admitted_s"]])))
    events = np.ascontiguousarray(np.stack([kinds, np.tile(np.arange(count), 3)], axis=1)[order])
    nodes = as_records(np.ascontiguousarray(workload.forest.nodes))
    hits, found = np.zeros(count, np.int64), np.zeros((4 * count, 3), np.int64)
    total = find_intervals(nodes, events, prompt, whole, useful, hits, found)
    if total > len(found):
        hits, found = np.zeros(count, np.int64), np.zeros((total, 3), np.int64)
        find_intervals(nodes, events, prompt, whole, useful, hits, found)
    found = found[:total]
    found = np.ascontiguousarray(found[np.argsort(found[:, 0], kind="stable")])
    used = np.zeros(3 * count, np.int64)
    tokens_in_use(nodes, events, prompt, (rows["retractions"] == 0).astype(np.int64), used)
    own = np.concatenate([prompt_tokens, prompt_tokens + rows["output_tokens"] - 1, np.zeros(count, np.int64)])[order]
    most_hits(events, np.maximum(capacity - np.maximum(used, own), 0), found, capacity, hits)
    return hits
