"""One compiled call steps many episodes: each gets its route, runs to its next decision, and that is encoded.

Importing this module compiles it, or loads it from the cache folder. The engine is not compiled again: its entry points
are called as first-class functions. Nothing here depends on an eviction policy.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from kvgym.encoding.decisions import REQUEST_FEATURES, WORKER_FEATURES, write_features
from kvgym.engine.cache.binding import BINDING_TYPE
from kvgym.engine.cache.policy import CACHE_TYPE, example_cache
from kvgym.engine.entry import entry
from kvgym.engine.entry.signatures import SIM_TYPE, example_sim
from kvgym.engine.serving.readings import HIT, INFLIGHT, INFLIGHT_TOKENS, KV_CAPACITY, KV_USED, QUEUED, RUNNING
from kvgym.engine.state import DECIDE, Cache, Sim
from kvgym.jit.door import JIT_ON, i64, njit
from kvgym.jit.entry_points import BOOL, FLOAT, INT, LENGTHS, MATRIX, VOID, callable_within, entry_point, type_of, types
from kvgym.jit.words import WORDS, word_form
from kvgym.knowledge import entry_index
from kvgym.knowledge.entry_index import NODES, TAGS_TYPE
from kvgym.knowledge.tags import TOKENS, Tags, new_tags

FORGETFUL = 5
"""Besides what `run` returns: the router's memory is too small for what it has to note."""
TIME, IN_SYSTEM, NO_TOKEN, BUSIEST, ALONE, DONE = range(6)
"""Columns of a row of progress: the integrals of `kvgym.backends.base.Progress`, and the requests that have ended."""


class Memory(NamedTuple):
    """What the router remembers: the tags of its `PrefixIndex`, and how many tokens each worker may have there."""

    tags: Tags
    limits: np.ndarray


class Episode(NamedTuple):
    """All arrays of one episode."""

    cache: Cache
    sim: Sim
    memory: Memory


class Verbs(NamedTuple):
    """The engine's entry points as first-class functions."""

    run: Any
    route: Any
    signals: Any
    note: Any
    match: Any


class Out(NamedTuple):
    """Where results go, a row for each episode.

    Shapes: code (episodes,), as returned by `run`, or FORGETFUL; request (episodes, features) and workers (episodes,
    workers, features), float32, as in `kvgym.encoding.decisions`, zero at the end of an episode; progress (episodes,
    5).
    """

    code: np.ndarray
    request: np.ndarray
    workers: np.ndarray
    progress: np.ndarray


def new_out(episodes: int, workers: int) -> Out:
    """Return zeroed results for so many episodes."""
    return Out(
        np.zeros(episodes, np.int64),
        np.zeros((episodes, len(REQUEST_FEATURES)), np.float32),
        np.zeros((episodes, workers, len(WORKER_FEATURES)), np.float32),
        np.zeros((episodes, DONE + 1)),
    )


NO_MEMORY = Memory(new_tags(1, 1), np.zeros(1, np.int64))
"""Stands in where the router sees the real caches."""
_EXAMPLE = Episode(example_cache(), example_sim(), NO_MEMORY)
_ARRAYS = (*_EXAMPLE.cache, *_EXAMPLE.sim, *NO_MEMORY.tags, NO_MEMORY.limits)
EPISODE_WORDS = sum(5 + 2 * array.ndim for array in _ARRAYS)
"""Words of an episode: numba's arrays have five, and a length and a stride for each dimension."""
VERB_WORDS = 20

if JIT_ON:
    _EPISODE_TYPE = type_of(_EXAMPLE)
    _VERB_TYPES = tuple(
        types.FunctionType(signature)
        for signature in (
            INT(CACHE_TYPE, SIM_TYPE, BINDING_TYPE),
            VOID(CACHE_TYPE, SIM_TYPE, INT, FLOAT),
            INT(CACHE_TYPE, SIM_TYPE, BOOL, MATRIX),
            BOOL(TAGS_TYPE, NODES, INT, INT, INT, FLOAT, INT),
            VOID(TAGS_TYPE, NODES, INT, INT, LENGTHS),
        )
    )
    _write_episode, _read_episode = word_form(_EPISODE_TYPE, EPISODE_WORDS)
    _write_verbs, _read_verbs = word_form(types.NamedTuple(_VERB_TYPES, Verbs), VERB_WORDS)

    @entry_point(VOID, WORDS, _EPISODE_TYPE)
    def _store(words: Any, episode: Episode) -> None:
        _write_episode(words, episode)

    @njit(types.void(WORDS, *_VERB_TYPES))
    def _store_verbs(words: Any, run: Any, route: Any, signals: Any, note: Any, match: Any) -> None:
        _write_verbs(words, Verbs(run, route, signals, note, match))


def new_rows(episodes: int) -> Any:
    """Return room for so many episodes in the form that `advance` takes."""
    return np.zeros((episodes, EPISODE_WORDS), np.int64) if JIT_ON else [None] * episodes


def put(rows: Any, i: int, episode: Episode) -> None:
    """Write an episode to row i; whoever does so keeps its arrays alive, and writes them again when they grow."""
    if JIT_ON:
        _store(rows[i], episode)
    else:
        rows[i] = episode


def verbs() -> Any:
    """Return the engine's entry points in the form that `advance` takes."""
    engine, index = (entry.run, entry.route, entry.signals), (entry_index.insert, entry_index.match)
    found = [callable_within(function) for function in engine + index]
    if not JIT_ON:
        return Verbs(*found)
    words = np.zeros(VERB_WORDS, np.int64)
    _store_verbs(words, *found)
    return words


@njit()
def _episode_of(words: Any) -> Episode:
    return _read_episode(words) if JIT_ON else words


@njit()
def _verbs_of(words: Any) -> Verbs:
    return _read_verbs(words) if JIT_ON else words


@njit()
def _note(e: Episode, verbs: Verbs, worker: int) -> bool:
    """Note that the pending prompt goes to `worker`; False (and nothing done) if the memory is too small."""
    clock, nodes = e.cache.clock[0], e.cache.nodes
    node = i64(e.sim.requests[clock.pending].prompt_node)
    limit = e.memory.limits[worker]
    return verbs.note(e.memory.tags, nodes, worker, node, i64(nodes[node].end), clock.now_s, limit)


@njit()
def _encode(e: Episode, verbs: Verbs, exact: bool, seen: np.ndarray, request: np.ndarray, workers: np.ndarray) -> None:
    """Write what the pending decision looks like; `seen` is room for the signals, int64 (7, workers)."""
    r = e.cache.clock[0].pending
    seen[:] = 0
    most = verbs.signals(e.cache, e.sim, exact, seen)
    asked = e.sim.requests[r]
    if not exact:
        hit = seen[HIT]
        verbs.match(e.memory.tags, e.cache.nodes, i64(asked.prompt_node), TOKENS, hit)
        for w in range(len(hit)):
            hit[w] = min(hit[w], most)
    write_features(
        i64(asked.prompt_tokens),
        i64(asked.max_new_tokens),
        i64(asked.turn),
        seen[INFLIGHT],
        seen[INFLIGHT_TOKENS],
        seen[RUNNING],
        seen[QUEUED],
        seen[KV_USED],
        seen[KV_CAPACITY],
        seen[HIT],
        request,
        workers,
    )


@njit()
def _advance_one(e: Episode, verbs: Verbs, bound: Any, exact: bool, worker: int) -> int:
    """Send the pending request to `worker` (-1: it has been sent) and run on; return the code."""
    if worker >= 0:
        if not exact and not _note(e, verbs, worker):
            return FORGETFUL
        verbs.route(e.cache, e.sim, worker, 0.0)
    return verbs.run(e.cache, e.sim, bound)


_OUT_TYPE = type_of(new_out(1, 1))


@entry_point(VOID, MATRIX, WORDS, BINDING_TYPE, BOOL, LENGTHS, LENGTHS, MATRIX, _OUT_TYPE)
def advance(
    episodes: Any,
    verbs: Any,
    bound: Any,
    exact: bool,
    chosen: np.ndarray,
    route: np.ndarray,
    seen: np.ndarray,
    out: Out,
) -> None:
    """Route and run the `chosen` episodes, each to its next decision or its end.

    An episode that must grow first says so in out.code and waits: once grown, the same call goes on with it, since
    what has been routed is marked in `route`.

    Args:
        episodes: rows that `put` has written.
        verbs: from `verbs()`.
        bound: the eviction policy.
        exact: `Decision.hit_tokens` is what the workers hold, not what the router remembers.
        chosen: rows of `episodes`, int64.
        route: worker for each of all episodes, int64; set to -1 where it has been done.
        seen: room for signals, int64 (7, workers).
        out: results.
    """
    engine = _verbs_of(verbs)
    for i in chosen:
        e = _episode_of(episodes[i])
        code = _advance_one(e, engine, bound, exact, route[i])
        out.code[i] = code
        if code != FORGETFUL:
            route[i] = -1
        clock, row = e.cache.clock[0], out.progress[i]
        row[TIME], row[IN_SYSTEM], row[NO_TOKEN] = clock.now_s, clock.area_s, clock.ttft_area_s
        row[BUSIEST], row[ALONE], row[DONE] = clock.busiest_s, clock.heaviest_s, clock.done
        if code == DECIDE:
            _encode(e, engine, exact, seen, out.request[i], out.workers[i])
        else:
            out.request[i] = 0.0
            out.workers[i] = 0.0
