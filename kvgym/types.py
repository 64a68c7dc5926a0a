"""Borders are crossed by these types: record layouts of requests, results and KV events, and the Decision.

Times are float seconds of simulated (or wall) time, lengths are tokens unless the name says otherwise.

Metric definitions used everywhere:
    latency_s = finish_s - arrival_s             end to end, as the client sees it
    ttft_s    = first_token_s - arrival_s        time to first token
    tpot_s    = (finish_s - first_token_s) / (output_tokens - 1)   time per output token, output_tokens >= 2
    hit rate  = sum(hit_tokens) / sum(prompt_tokens) over completed requests
    goodput   = completed requests with ttft_s, tpot_s and latency_s at most the limits that were given (`config.slo`);
                a request of one output token has no tpot_s and keeps any limit on it
    normalized latency = latency_s / output_tokens                 s per token, as in the vLLM paper (arXiv 2309.06180)
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from kvgym.forest.forest import Forest

REQUEST = np.dtype(
    [
        ("arrival_s", np.float64),  # release time; for a follow-up turn or a backlog head: unused (0)
        ("think_s", np.float64),  # delay after the predecessor has finished, seconds
        ("prompt_node", np.int32),  # deepest forest node of the prompt's whole pages
        ("output_node", np.int32),  # deepest forest node of prompt + output; -1: nothing of the output is shared
        ("prompt_tokens", np.int32),
        ("output_tokens", np.int32),  # tokens that will be generated, >= 1 (not visible to routers)
        ("max_new_tokens", np.int32),  # what the client asked for (visible)
        ("prompt_chars", np.int32),
        ("session", np.int32),
        ("turn", np.int32),  # 0-based turn within the session
        ("next", np.int32),  # request released when this one has finished; -1: none
        ("priority", np.int32),
        ("tenant", np.int32),  # who sent it; 0 where the source does not say
        ("region", np.int32),  # where its client sits; 0 where the source does not say
    ],
    align=True,
)
"""One request of a workload, as generated. Follow-up turns are found through `next`, never by arrival_s."""

PENDING, QUEUED, RUNNING, DONE, REJECTED, FAILED = 0, 1, 2, 3, 4, 5
"""Values of RECORD.status."""

RECORD = np.dtype(
    [
        ("request", np.int32),
        ("session", np.int32),
        ("turn", np.int32),
        ("worker", np.int32),
        ("status", np.int32),
        ("prompt_tokens", np.int32),
        ("hit_tokens", np.int32),  # prompt tokens found in the worker's cache at admission
        ("output_tokens", np.int32),  # tokens really generated
        ("retractions", np.int32),
        ("attempts", np.int32),  # times that it was sent to a worker
        ("priority", np.int32),
        ("tenant", np.int32),
        ("arrival_s", np.float64),
        ("admitted_s", np.float64),  # first admission into a prefill batch
        ("first_token_s", np.float64),
        ("finish_s", np.float64),
        ("predicted_s", np.float64),  # latency that the controller expected at its choice; -1: it gave none
    ],
    align=True,
)
"""One row per finished (done, rejected or failed) request, in order of completion."""

CANDIDATE = np.dtype(
    [
        ("age", np.int64),  # ticks since it was made; a tick is one match or insert in this worker's cache, or a split
        ("idle", np.int64),  # ticks since its last access
        ("tokens", np.int32),  # that it holds
        ("depth", np.int32),  # tokens from the beginning of the prompt to its end
        ("hits", np.int32),  # requests that have inserted it (SGLang's hit_count)
        ("children", np.int32),  # leaves and branches that were ever made below it
        ("fanout", np.int32),  # children of its parent now, itself included
        ("priority", np.int32),  # largest priority of a request that has inserted it
        ("marked", np.int32),  # 1: accessed in this phase (RLT's mark)
        ("open", np.int32),  # 1: the session that used it first has turns that have not ended
    ],
    align=True,
)
"""One leaf that may be evicted."""


STORED, REMOVED = 0, 1
"""Values of KV_EVENT.kind."""

KV_EVENT = np.dtype(
    [
        ("time_s", np.float64),
        ("worker", np.int32),
        ("incarnation", np.int32),  # of the worker then
        ("kind", np.int32),
        ("node", np.int32),  # forest node that contains token `last` - 1
        ("first", np.int32),  # tokens first .. last-1 of the node's path
        ("last", np.int32),
    ],
    align=True,
)
"""What a worker's cache has stored or removed; the simulator logs it where routers hear KV events."""


@dataclass(frozen=True)
class FleetSpec:
    """What a controller is told at reset: the fleet's shape and the forest that prompts live in."""

    workers: int
    capacity_tokens: tuple[int, ...]  # KV tokens per worker
    page_size: int
    forest: Forest
    network_s: tuple[tuple[float, ...], ...] = ()  # seconds one way, (regions, workers); one row: the same everywhere


@dataclass(frozen=True)
class Decision:
    """One routing decision: what a router can see of the request and of each worker, true or not.

    Arrays have shape (workers,). What is seen is set by `kvgym.config.signals.SignalsConfig`:

    - `inflight` and `inflight_tokens` are this router's own counts, always live. With several routers they miss what
      the others send.
    - `running`, `queued` and `kv_used_tokens` are what the workers report, perhaps some seconds old (0 before the first
      report); None: they report nothing.
    - `hit_tokens` says how much of this prompt each worker holds, by this router's own memory of what it sent where,
      which is bounded and does not see what the engines evict (``router``); by what the caches report, perhaps late
      and with gaps (``events``); or what an admission would really find now (``exact``). None: nobody knows.
    """

    time_s: float
    request: int  # index into the workload
    node: int  # forest node of the prompt
    prompt_tokens: int
    prompt_chars: int
    max_new_tokens: int
    session: int
    turn: int
    priority: int
    inflight: np.ndarray  # requests sent and not yet answered (router's own count)
    inflight_tokens: np.ndarray  # their prompt tokens
    running: np.ndarray | None  # requests in the engine's running batch
    queued: np.ndarray | None  # requests waiting in the engine
    kv_used_tokens: np.ndarray | None  # resident + private KV tokens
    kv_capacity_tokens: np.ndarray
    mask: np.ndarray = field(repr=False)  # bool, True where a worker may be chosen
    tenant: int = 0
    region: int = 0
    router: int = 0  # which of several routers decides
    hit_tokens: np.ndarray | None = None  # tokens of this prompt that each worker holds; at most prompt_tokens - 1
    incarnation: np.ndarray | None = (
        None  # failures of each worker so far: a new one emptied its cache; None: none fail
    )
    network_s: np.ndarray | None = None  # seconds one way from this request's region to each worker; None: no delay


@dataclass(frozen=True)
class EvictionDecision:
    """One eviction decision: a worker is short of KV space, and some of its evictable leaves are offered.

    What one choice frees may be too little; then the next decision follows at the same time. A phase is RLT's: it ends,
    and every mark with it, when a decision comes and no evictable leaf is without a mark.
    """

    time_s: float
    worker: int
    need_tokens: int  # still to be freed
    free_tokens: int
    evictable_tokens: int
    capacity_tokens: int
    leaves: int  # evictable leaves, offered or not
    unmarked: int  # those without a mark
    running: int  # requests in the worker's running batch
    queued: int  # requests waiting in it
    candidates: np.ndarray  # CANDIDATE rows, shape (offered,)
    mask: np.ndarray = field(repr=False)  # bool, True for the first `offered` of all places
