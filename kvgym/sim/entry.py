"""The engine's compiled entry points, with explicit signatures; a policy's hooks come as `binding.bind` made them.

Importing this module compiles the engine, or loads it from the cache folder; it is imported when an engine is built.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numba
import numpy as np
from numba import types

from kvgym.jit import JIT_ON, i64, njit, record_zeros
from kvgym.sim import cluster
from kvgym.sim.binding import BINDING_TYPE, hooks_of
from kvgym.sim.cache import insert as cache_insert
from kvgym.sim.cache import lock as cache_lock
from kvgym.sim.cache import match as cache_match
from kvgym.sim.cache import peek, table_add
from kvgym.sim.cache import unlock as cache_unlock
from kvgym.sim.policy import CACHE_TYPE
from kvgym.sim.signals import read_records, read_signals
from kvgym.sim.state import EVENT, LIVE, Cache, Sim
from kvgym.types import RECORD, REQUEST


def example_sim() -> Sim:
    """Return a `Sim` of the shapes that the signatures are made from."""
    ids = np.zeros(1, np.int32)
    return Sim(record_zeros(1, REQUEST), record_zeros(1, LIVE), ids, ids, ids, ids, record_zeros(2, EVENT))


def _entry_point(signature: Any) -> Callable[[Callable[..., Any]], Any]:
    """Return the decorator that compiles for `signature` and hands out the compiled function itself.

    numba's dispatcher would look at the types of some twenty arrays at each call, which takes as long as the work. The
    price: nobody checks that arrays have the right layout, so only arrays made by `new_cache` and `Engine` may come.
    """

    def decorate(function: Callable[..., Any]) -> Any:
        (compiled,) = njit(signature)(function).overloads.values()
        return compiled.entry_point

    return decorate if JIT_ON else njit()


def _compile(result: Any, *arguments: Any) -> Any:
    return _entry_point(result(CACHE_TYPE, *arguments, BINDING_TYPE) if JIT_ON else None)


def _plain(result: Any, *arguments: Any) -> Any:
    return _entry_point(result(CACHE_TYPE, *arguments) if JIT_ON else None)


INT, VOID = types.int64, types.void
PAIR = types.UniTuple(types.int64, 2)
SIM_TYPE = numba.typeof(example_sim()) if JIT_ON else None


@_compile(INT, SIM_TYPE)
def run(c: Cache, x: Sim, bound: Any) -> int:
    """`cluster.run`."""
    return cluster.run(c, x, hooks_of(bound))


@_compile(INT, SIM_TYPE, INT)
def run_rule(c: Cache, x: Sim, rule: int, bound: Any) -> int:
    """`cluster.run_rule`."""
    return cluster.run_rule(c, x, hooks_of(bound), rule)


@_compile(INT, INT)
def serve_eviction(c: Cache, w: int, bound: Any) -> int:
    """Let the policy serve the eviction that worker w waits for; return the tokens freed."""
    freed = i64(hooks_of(bound).evict(c, w, c.workers[w].need))
    c.workers[w].need = 0
    return freed


@_compile(INT, INT, INT, INT)
def match(c: Cache, w: int, node: int, tokens: int, bound: Any) -> int:
    """`cache.match`."""
    return cache_match(c, hooks_of(bound), w, node, tokens)


@_compile(PAIR, INT, INT, INT, INT, INT)
def insert(c: Cache, w: int, node: int, tokens: int, priority: int, inserted: int, bound: Any) -> tuple[int, int]:
    """`cache.insert` of an unlocked new slot."""
    return cache_insert(c, hooks_of(bound), w, node, tokens, priority, inserted, False)


@_compile(VOID, INT, INT)
def lock(c: Cache, w: int, s: int, bound: Any) -> None:
    """`cache.lock` up to the root."""
    cache_lock(c, hooks_of(bound), w, s, w)


@_compile(VOID, INT, INT)
def unlock(c: Cache, w: int, s: int, bound: Any) -> None:
    """`cache.unlock`."""
    cache_unlock(c, hooks_of(bound), w, s)


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


@_plain(INT, INT, INT, INT)
def look(c: Cache, w: int, node: int, tokens: int) -> int:
    """`cache.peek`."""
    return peek(c, w, node, tokens)


@_plain(INT, SIM_TYPE, types.boolean, types.int64[:, ::1])
def signals(c: Cache, x: Sim, exact: bool, out: np.ndarray) -> int:
    """`signals.read_signals`."""
    return read_signals(c, x, exact, out)


@_entry_point(VOID(SIM_TYPE, INT, numba.from_dtype(RECORD)[::1]) if JIT_ON else None)
def records(x: Sim, first: int, rows: np.ndarray) -> None:
    """`signals.read_records`."""
    read_records(x, first, rows)
