"""An episode is record arrays for cache slots, workers and live requests, nothing else.

Copying the arrays forks the episode, pickling them saves it. All of it is plain numpy; compiled functions take the
`Cache` and `Sim` tuples below. Lengths and depths are tokens, times are seconds of simulated time.

The short names of compiled code, here and in eviction policies; all but the first three are indices:

- ``c``  the `Cache`: forest, slots, workers and clock; all that an eviction policy sees.
- ``x``  the `Sim`: the requests, those that are live, and where they are released.
- ``e``  an `Episode` of `entry.episodes`, where one call steps many; ``t`` the `Tags` of `kvgym.knowledge`.
- ``w``  a worker: ``c.workers[w]``; its root slot has the same number.
- ``s``  a slot of the radix cache: ``c.slots[s]``.
- ``r``  a request: ``x.requests[r]``, what the workload says of it, and ``x.live[r]``, what has become of it.
- ``b``  a block of a vLLM worker: ``c.blocks[b]``.
- ``i``  a position: on the forest path ``c.path``, in a hash table or in a row of ``c.order``.
- ``k``  a page or block of a prompt, counted from its beginning.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from kvgym.jit.door import record_zeros
from kvgym.jit.tuples import whole
from kvgym.types import KV_EVENT

SLOT = np.dtype(
    [
        ("worker", np.int32),
        ("parent", np.int32),  # slot of the parent; free slots: next free slot
        ("node", np.int32),  # forest node that contains token d1 - 1
        ("first", np.int32),  # forest node that contains token d0
        ("d0", np.int32),  # the slot holds tokens d0 .. d1-1 of its path
        ("d1", np.int32),
        ("children", np.int32),
        ("lock", np.int32),  # running requests that hold this slot
        ("hits", np.int32),  # SGLang hit_count: grows on insert only
        ("priority", np.int32),
        ("pos", np.int32),  # index in the worker's row of `order`; -1: not an evictable leaf
        ("epoch", np.int32),  # marking policies: phase in which `mark` was written
        ("mark", np.int32),  # marking policies: tokens mark .. d1-1 are marked (d1: none)
        ("access", np.int64),  # worker tick of the last match or insert that passed here
        ("created", np.int64),  # worker tick of creation (a split makes the upper half new)
        ("key", np.int64),  # keyed policies: rank, smallest is evicted first
    ],
    align=True,
)
"""One radix-cache node of one worker, equal to a TreeNode of SGLang's RadixCache. Slots 0..workers-1 are the roots."""

IDLE, READY, ALLOC_PREFILL, ALLOC_DECODE, PREFILL, DECODE, DOWN, ALLOC_TAILS, ALLOC_MIXED = range(9)
"""Values of WORKER.phase. PREFILL and DECODE: a step runs until `due_s`; ALLOC_*: memory is being found for it (TAILS:
for decodes without which the prefill step would run alone, MIXED: for both); DOWN: not joined yet, or failed (its lists
and its cache stay as they were until the router notices)."""

UNSEEN, WAITING, STREAMING = 0, 1, 2
"""Values of LIVE.stage, the client's view: not sent yet, waiting for the first token, first token seen."""

STOP, NOTICE, START = 0, 1, 2
"""Values of CHANGE.kind: a worker dies; the router learns of it and the worker's cache and requests are gone; a worker
is up with an empty cache."""

FINISHED, DECIDE, EVICT, GROW, BROKEN = 0, 1, 2, 3, 4
"""What `run` returns: all drained; a request waits for a route; a worker waits for an eviction; arrays are too small;
an invariant is broken."""

WORKER = np.dtype(
    [
        ("due_s", np.float64),  # next event of this worker; inf when idle
        ("start_s", np.float64),  # start of the running step (or first step of a decode leap)
        ("busy_s", np.float64),  # accumulated step time (makespan_load_s is the largest)
        ("alone_s", np.float64),  # sum of what each of its answered requests would have cost alone
        ("ratio", np.float64),  # SGLang new_token_ratio (used without ignore_eos)
        ("speed", np.float64),  # step times are divided by this
        ("capacity", np.int64),  # KV pool, tokens
        ("free", np.int64),  # KV pool tokens that nobody holds (whole pages)
        ("evictable", np.int64),  # resident tokens on unlocked slots
        ("protected", np.int64),  # resident tokens on locked slots
        ("private", np.int64),  # tokens held by running requests outside the tree (whole pages)
        ("tick", np.int64),  # logical clock of cache operations
        ("marked", np.int64),  # marking policies: marked tokens in this phase
        ("decoded", np.int64),  # decode steps ever made
        ("context", np.int64),  # KV tokens of the running batch
        ("evicted", np.int64),  # tokens evicted so far
        ("hit", np.int64),  # prompt tokens found in the cache at first admission
        ("prompted", np.int64),  # prompt tokens of first admissions
        ("admitted", np.int64),  # first admissions
        ("steps", np.int64),  # engine steps made
        ("first_finish", np.int64),  # `decoded` at which the first running request finishes; -1: not known
        ("need", np.int64),  # tokens that the eviction in progress still has to free
        ("phase", np.int32),
        ("evict_full", np.int32),  # 1: ask for the whole demand; 0: the shortfall (`kvgym.config.engines`)
        ("in_full", np.int32),  # 1: with ignore_eos reserve max_new_tokens in full; 0: times `ratio` all the same
        ("mixed_chunk", np.int32),  # 1: running requests decode in prefill steps, too
        ("mixed", np.int32),  # 1: they do so in the step in progress
        ("blocked", np.int32),  # 1: a vLLM worker, whose cache are blocks; 0: SGLang, a radix tree
        ("front_free", np.int32),  # vLLM 0.33: blocks without a hash are the first to be handed out
        ("whole_prompt", np.int32),  # vLLM 0.23 and later: the whole prompt must fit before its first chunk is admitted
        ("first_block", np.int32),  # the worker's first block; a vLLM worker has capacity / page of them
        ("free_head", np.int32),  # its free blocks, in the order of reuse
        ("free_tail", np.int32),
        ("retracted", np.int32),  # 1: the next decode step follows a retraction (it does not lower the ratio)
        ("full", np.int32),  # SGLang batch_is_full: no admission until somebody leaves
        ("epoch", np.int32),  # marking policies: number of the phase
        ("leaves", np.int32),  # evictable leaves (length of the row of `order`)
        ("unmarked", np.int32),  # list policies: the first `unmarked` leaves of the row are candidates
        ("queue_head", np.int32),
        ("queue_tail", np.int32),
        ("queued", np.int32),
        ("batch_head", np.int32),  # requests of the prefill step in progress
        ("batch_tail", np.int32),
        ("batch", np.int32),
        ("run_head", np.int32),  # decoding requests, in SGLang's batch order
        ("run_tail", np.int32),
        ("running", np.int32),
        ("chunked", np.int32),  # request whose prompt is only partly computed; -1: none
        ("leap", np.int32),  # decode steps that the event at due_s completes
        ("inflight", np.int32),  # router's view: sent and not yet answered
        ("inflight_tokens", np.int64),  # their prompt tokens
        ("retractions", np.int64),
        ("incarnation", np.int64),  # times that it has lost its cache by a failure that the router has noticed
        ("visible", np.int32),  # 1: the router takes it for up
    ],
    align=True,
)
"""One worker: memory accounting, scheduler lists (linked through LIVE) and counters."""

LIVE = np.dtype(
    [
        ("release_s", np.float64),  # arrival at the router
        ("enter_s", np.float64),  # arrival in the worker's waiting queue
        ("admitted_s", np.float64),
        ("first_s", np.float64),
        ("finish_s", np.float64),
        ("due_s", np.float64),  # when it is at the router next: arrival, retry, first token or end
        ("net_s", np.float64),  # network delay between its client and its worker, one way
        ("join", np.int64),  # worker.decoded when the request joined the running batch
        ("status", np.int32),  # kvgym.types: PENDING .. FAILED
        ("worker", np.int32),
        ("next", np.int32),  # links of the queue, batch or run list that the request is in
        ("prev", np.int32),
        ("slot", np.int32),  # locked slot: end of the tree-owned prefix
        ("hit", np.int32),  # tokens matched at first admission
        ("prefix", np.int32),  # tree-owned tokens (SGLang cache_protected_len)
        ("inserted", np.int32),  # longest key inserted by this request (SGLang cache_inserted_len)
        ("goal", np.int32),  # tokens to prefill: prompt + already generated
        ("kv", np.int32),  # computed tokens when the request joined (decode adds one a step)
        ("extend", np.int32),  # tokens that the prefill step in progress computes
        ("out", np.int32),  # tokens generated when the request joined
        ("target", np.int32),  # tokens it will generate in the end
        ("asked", np.int32),  # max_new_tokens, clipped to what the worker's pool can hold
        ("retractions", np.int32),
        ("attempts", np.int32),  # times that it was sent to a worker
        ("stage", np.int32),  # what its client has seen: UNSEEN .. STREAMING
        ("router", np.int32),  # which of several routers sends it
        ("row", np.int32),  # vLLM: row of `tables` that lists its blocks
        ("blocks", np.int32),  # how many it has
        ("hashed", np.int32),  # how many of them can be found by their content
    ],
    align=True,
)
"""The moving part of a request; its fixed part is kvgym.types.REQUEST at the same index."""

CLOCK = np.dtype(
    [
        ("now_s", np.float64),
        ("area_s", np.float64),  # integral of the number of requests in the system
        ("ttft_area_s", np.float64),  # integral of the number of requests without a first token
        ("busiest_s", np.float64),  # largest busy_s
        ("heaviest_s", np.float64),  # largest alone_s
        ("change_s", np.float64),  # time of the next entry of `changes`; inf: none
        ("in_system", np.int64),
        ("no_first", np.int64),
        ("pending", np.int64),  # request that waits for a routing decision; -1: none
        ("cursor", np.int64),  # next entry of `arrivals`
        ("heap", np.int64),  # length of the release heap
        ("backlog", np.int64),  # next entry of `heads` that a finished session releases
        ("done", np.int64),  # length of the completion log
        ("free_slot", np.int64),  # first free slot; -1: none
        ("free_slots", np.int64),
        ("evict_worker", np.int64),  # worker that waits for an eviction decision; -1: none
        ("change", np.int64),  # next entry of `changes`
        ("visible", np.int64),  # workers that the router takes for up
        ("logged", np.int64),  # entries of `log`
        ("scrapes", np.int64),  # scrapes of the engines' metrics so far
        ("scrape_due_s", np.float64),  # time of the next one; inf: metrics are always fresh
        ("scrape_word", np.uint64),  # random stream that loses scrapes
        ("free_rows", np.int64),  # rows of `tables` that are free: the first ones of `rows`
        ("error", np.int64),  # worker + 1 that can't go on or whose integrity check failed; 0: none
    ],
    align=True,
)
"""Scalars of the episode (one record)."""

OPTIONS = np.dtype(
    [
        ("page", np.int64),
        ("chunk", np.int64),  # chunked prefill budget, tokens a step
        ("prefill", np.int64),  # max_prefill_tokens
        ("long_prefill", np.int64),  # vLLM: most tokens of one prompt in a step that it shares; 0: no such limit
        ("max_running", np.int64),
        ("clients", np.int64),  # closed-loop clients; 0: open loop
        ("ignore_eos", np.int64),  # 1: answers are as long as asked for
        ("pause_evict", np.int64),  # 1: return at every eviction
        ("constants", np.int64),  # leading numbers of a row of `memory` that a restarted worker keeps
        ("check", np.int64),  # 1: integrity check after every event
        ("retries", np.int64),  # most re-sends of a request that was lost with its worker
        ("retry_s", np.float64),  # from the loss until it is at the router again
        ("log", np.int64),  # 1: every store and removal in a cache is logged
        ("scrape_s", np.float64),  # period of the scrapes; 0: metrics are always fresh
        ("scrape_delay_s", np.float64),  # from a scrape to the router
        ("scrape_loss", np.float64),  # probability that the scrape of one worker is lost
        ("request_s", np.float64),  # HTTP and tokenising before the worker sees a request
        ("step_s", np.float64),  # CPU time added to every step
        ("p0", np.float64),
        ("p_tok", np.float64),
        ("p_quad", np.float64),
        ("p_kv", np.float64),
        ("d0", np.float64),
        ("d_seq", np.float64),
        ("d_kvtok", np.float64),
        ("mix_kvtok", np.float64),
    ],
    align=True,
)
"""Fixed options of the engine and the cost model (one record; seconds)."""

CHANGE = np.dtype([("time_s", np.float64), ("worker", np.int32), ("kind", np.int32)], align=True)
"""One entry of the fleet's schedule, in the order in which they happen."""

BLOCK = np.dtype(
    [
        ("worker", np.int32),
        ("node", np.int32),  # forest node of its last token; -2 - r: request r alone has it
        ("depth", np.int32),  # where it ends in its prefix, tokens; 0: it has no hash
        ("ref", np.int32),  # requests that hold it; 0: it is on the free list
        ("next", np.int32),  # links of the free list
        ("prev", np.int32),
        ("twin", np.int32),  # next block of equal content; -1: none
    ],
    align=True,
)
"""One block of a vLLM worker's KV pool (`kvgym.engine.cache.blocks`)."""

EVENT = np.dtype(
    [("time_s", np.float64), ("kind", np.int32), ("worker", np.int32), ("tokens", np.int64)],
    align=True,
)
"""One entry of the ring buffer that `KVGYM_CHECK=1` keeps."""


@whole
class Cache(NamedTuple):
    """What cache functions and eviction policies see. All arrays are shared with `Sim`.

    Shapes: nodes (forest nodes,), slots (slots,), table (power of two,), order (workers, leaves), scratch
    (2 * leaves,), path (deepest level + 2,), workers (workers,), rng (workers,), memory (workers, the policy's
    `memory`), clock (1,), options (1,), log (events,), blocks (blocks of all vLLM workers,), block_table (power of
    two,).
    """

    nodes: np.ndarray
    slots: np.ndarray
    table: np.ndarray
    order: np.ndarray
    scratch: np.ndarray
    path: np.ndarray
    workers: np.ndarray
    rng: np.ndarray
    memory: np.ndarray
    clock: np.ndarray
    options: np.ndarray
    log: np.ndarray
    blocks: np.ndarray
    block_table: np.ndarray


@whole
class Sim(NamedTuple):
    """The rest of the episode: requests, releases, results, what the fleet does on its own, what routers know.

    Shapes: (requests,) each, ring (1000,), changes (changes,), network (regions, workers) seconds one way or (0, 0),
    sent (routers, 2, workers): requests and prompt tokens in flight, scrapes (scrapes on their way + some, 3, workers):
    running, queued, KV tokens used at scrape k in row k modulo the length, tables (rows, blocks of the longest request)
    and rows (rows,): the blocks of requests that run on vLLM workers, and which rows are free.
    """

    requests: np.ndarray
    live: np.ndarray
    arrivals: np.ndarray
    heads: np.ndarray
    heap: np.ndarray
    done: np.ndarray
    ring: np.ndarray
    changes: np.ndarray
    network: np.ndarray
    sent: np.ndarray
    scrapes: np.ndarray
    tables: np.ndarray
    rows: np.ndarray


def new_cache(
    nodes: np.ndarray,
    capacities: np.ndarray,
    options: np.ndarray,
    seed: int,
    slots: int = 1024,
    leaves: int = 64,
    memory: int = 0,
) -> Cache:
    """Return an empty cache for every worker.

    Args:
        nodes: forest NODE records.
        capacities: KV pool tokens per worker, shape (workers,), multiples of the page size.
        options: one OPTIONS record.
        seed: of the eviction policies' random streams, one per worker.
        slots: initial number of slots (grown on demand).
        leaves: initial row length of `order` (grown on demand).
        memory: numbers that the eviction policy keeps per worker.
    """
    workers = len(capacities)
    total = max(slots, 2 * workers)
    records = record_zeros(total, SLOT)
    for name in ("parent", "pos"):
        records[name] = -1
    records["lock"][:workers] = 1
    records["worker"][:workers] = np.arange(workers)
    clock = record_zeros(1, CLOCK)
    clock["free_slot"] = -1
    clock["change_s"] = np.inf
    clock["visible"] = workers
    clock["pending"] = clock["evict_worker"] = -1
    clock["scrape_due_s"] = np.inf
    states = np.random.SeedSequence(seed).generate_state(workers, np.uint64) | np.uint64(1)
    cache = Cache(
        nodes=nodes,
        slots=records,
        table=np.full(table_size(total), -1, np.int32),
        order=np.zeros((workers, leaves), np.int32),
        scratch=np.zeros(2 * leaves, np.int32),
        path=np.zeros(int(nodes["level"].max(initial=0)) + 2, np.int32),
        workers=_new_workers(capacities),
        rng=states,
        memory=np.zeros((workers, memory)),
        clock=clock,
        options=options,
        log=record_zeros(1, KV_EVENT),
        blocks=record_zeros(0, BLOCK),
        block_table=np.full(16, -1, np.int32),
    )
    link_free(cache, workers, total)
    return cache


def _new_workers(capacities: np.ndarray) -> np.ndarray:
    """Return WORKER records of idle workers with empty caches."""
    fleet = record_zeros(len(capacities), WORKER)
    fleet["capacity"] = fleet["free"] = capacities
    fleet["due_s"] = np.inf
    fleet["speed"] = 1.0
    fleet["visible"] = fleet["in_full"] = 1
    fleet["ratio"] = 0.7
    for part in ("queue", "batch", "run"):
        fleet[f"{part}_head"] = fleet[f"{part}_tail"] = -1
    fleet["chunked"] = fleet["first_finish"] = -1
    return fleet


def with_blocks(cache: Cache, blocked: np.ndarray) -> Cache:
    """Return the cache with a pool of free blocks for each worker that `blocked`, bool (workers,), names."""
    workers, page = cache.workers, int(cache.options["page"][0])
    counts = np.where(blocked, workers["capacity"] // page, 0)
    blocks = record_zeros(int(counts.sum()), BLOCK)
    blocks["twin"] = -1
    workers["free_head"] = workers["free_tail"] = -1
    first = 0
    for w in np.flatnonzero(blocked):
        last = first + int(counts[w]) - 1
        blocks["worker"][first : last + 1] = w
        blocks["prev"][first : last + 1] = [-1, *range(first, last)]
        blocks["next"][first : last + 1] = [*range(first + 1, last + 1), -1]
        workers["blocked"][w], workers["first_block"][w] = 1, first
        workers["free_head"][w], workers["free_tail"][w] = first, last
        first = last + 1
    return cache._replace(blocks=blocks, block_table=np.full(table_size(first), -1, np.int32))


def table_size(slots: int) -> int:
    """Return the hash table length for so many slots: a power of two, at most half full."""
    return 1 << max(4, int(2 * slots - 1).bit_length())


def link_free(cache: Cache, first: int, last: int) -> None:
    """Put slots first..last-1 on the free list, lowest id first."""
    if last <= first:
        return
    parent = cache.slots["parent"]
    parent[first:last] = np.arange(first + 1, last + 1)
    parent[last - 1] = cache.clock["free_slot"][0]
    cache.slots["pos"][first:last] = -1
    cache.clock["free_slot"] = first
    cache.clock["free_slots"] += last - first
