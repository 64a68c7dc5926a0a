"""The engine's compiled entry points, with explicit signatures: hooks come as first-class functions.

Importing this module compiles the engine, or loads it from the cache folder; it is imported when an engine is built.
"""

from __future__ import annotations

from typing import Any

import numba
import numpy as np
from numba import types

from kvgym.jit import JIT_ON, i64, njit, record_zeros
from kvgym.sim import cluster
from kvgym.sim.cache import insert as cache_insert
from kvgym.sim.cache import lock as cache_lock
from kvgym.sim.cache import match as cache_match
from kvgym.sim.cache import peek, table_add
from kvgym.sim.cache import unlock as cache_unlock
from kvgym.sim.memory import cacheable
from kvgym.sim.policy import CACHE_TYPE, HOOK_TYPES, Hooks
from kvgym.sim.state import EVENT, LIVE, Cache, Sim
from kvgym.types import REQUEST


def example_sim() -> Sim:
    """Return a `Sim` of the shapes that the signatures are made from."""
    ids = np.zeros(1, np.int32)
    return Sim(record_zeros(1, REQUEST), record_zeros(1, LIVE), ids, ids, ids, ids, record_zeros(2, EVENT))


def _compile(result: Any, *arguments: Any) -> Any:
    return njit(result(CACHE_TYPE, *arguments, *HOOK_TYPES)) if JIT_ON else njit()


def _plain(result: Any, *arguments: Any) -> Any:
    return njit(result(CACHE_TYPE, *arguments)) if JIT_ON else njit()


INT, VOID = types.int64, types.void
PAIR = types.UniTuple(types.int64, 2)
SIM_TYPE = numba.typeof(example_sim()) if JIT_ON else None


@_compile(INT, SIM_TYPE)
def run(c: Cache, x: Sim, enter: Any, leave: Any, touch: Any, evict: Any) -> int:
    """`cluster.run`."""
    return cluster.run(c, x, Hooks(enter, leave, touch, evict))


@_compile(INT, SIM_TYPE, INT)
def run_rule(c: Cache, x: Sim, rule: int, enter: Any, leave: Any, touch: Any, evict: Any) -> int:
    """`cluster.run_rule`."""
    return cluster.run_rule(c, x, Hooks(enter, leave, touch, evict), rule)


@_compile(INT, INT)
def serve_eviction(c: Cache, w: int, enter: Any, leave: Any, touch: Any, evict: Any) -> int:
    """Let the policy serve the eviction that worker w waits for; return the tokens freed."""
    freed = i64(evict(c, w, c.workers[w].need))
    c.workers[w].need = 0
    return freed


@_compile(INT, INT, INT, INT)
def match(c: Cache, w: int, node: int, tokens: int, enter: Any, leave: Any, touch: Any, evict: Any) -> int:
    """`cache.match`."""
    return cache_match(c, Hooks(enter, leave, touch, evict), w, node, tokens)


@_compile(PAIR, INT, INT, INT, INT, INT)
def insert(
    c: Cache,
    w: int,
    node: int,
    tokens: int,
    priority: int,
    inserted: int,
    enter: Any,
    leave: Any,
    touch: Any,
    evict: Any,
) -> tuple[int, int]:
    """`cache.insert` of an unlocked new slot."""
    return cache_insert(c, Hooks(enter, leave, touch, evict), w, node, tokens, priority, inserted, False)


@_compile(VOID, INT, INT)
def lock(c: Cache, w: int, s: int, enter: Any, leave: Any, touch: Any, evict: Any) -> None:
    """`cache.lock` up to the root."""
    cache_lock(c, Hooks(enter, leave, touch, evict), w, s, w)


@_compile(VOID, INT, INT)
def unlock(c: Cache, w: int, s: int, enter: Any, leave: Any, touch: Any, evict: Any) -> None:
    """`cache.unlock`."""
    cache_unlock(c, Hooks(enter, leave, touch, evict), w, s)


@_plain(VOID, SIM_TYPE, INT)
def route(c: Cache, x: Sim, w: int) -> None:
    """`cluster.route`."""
    cluster.route(c, x, w)


@_plain(VOID, types.int32[::1])
def rehash(c: Cache, table: np.ndarray) -> None:
    """Enter every slot of the old `table` into c.table."""
    for i in range(len(table)):
        if table[i] >= 0:
            table_add(c, i64(table[i]))


@_plain(types.int64[::1], SIM_TYPE, INT)
def hits(c: Cache, x: Sim, r: int) -> np.ndarray:
    """Tokens of request r's prompt that an admission would find, per worker, shape (workers,)."""
    found = np.zeros(len(c.workers), np.int64)
    node, tokens = i64(x.requests[r].prompt_node), cacheable(c, x, r, i64(x.requests[r].prompt_tokens - 1))
    for w in range(len(found)):
        found[w] = peek(c, w, node, tokens)
    return found


@_plain(INT, INT, INT, INT)
def look(c: Cache, w: int, node: int, tokens: int) -> int:
    """`cache.peek`."""
    return peek(c, w, node, tokens)
