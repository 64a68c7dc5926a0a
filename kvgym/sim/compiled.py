"""How entry points are compiled: explicit signatures, a policy's hooks as `binding.bind` made them, no dispatcher."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numba
import numpy as np
from numba import types

from kvgym.jit import JIT_ON, njit, record_zeros
from kvgym.sim.binding import BINDING_TYPE
from kvgym.sim.policy import CACHE_TYPE
from kvgym.sim.state import CHANGE, EVENT, LIVE, Sim
from kvgym.types import RECORD, REQUEST

INT, FLOAT, VOID, BOOL = types.int64, types.float64, types.void, types.boolean
INTS = types.int32[::1]
MATRIX = types.int64[:, ::1]
PAIR = types.UniTuple(types.int64, 2)
RECORDS = numba.from_dtype(RECORD)[::1] if JIT_ON else None


def example_sim() -> Sim:
    """Return a `Sim` of the shapes that the signatures are made from."""
    ids, counts = np.zeros(1, np.int32), np.zeros((1, 2, 1), np.int64)
    live, ring, changes = record_zeros(1, LIVE), record_zeros(2, EVENT), record_zeros(1, CHANGE)
    requests, network = record_zeros(1, REQUEST), np.zeros((1, 1))
    return Sim(requests, live, ids, ids, ids, ids, ring, changes, network, counts, counts)


SIM_TYPE = numba.typeof(example_sim()) if JIT_ON else None


_DISPATCHERS: dict[Callable[..., Any], Any] = {}


def callable_within(entry: Callable[..., Any]) -> Any:
    """Return an entry point in the form in which compiled functions take it as an argument, a first-class function."""
    return _DISPATCHERS.get(entry, entry)


def entry_point(result: Any, *arguments: Any) -> Callable[[Callable[..., Any]], Any]:
    """Return the decorator that compiles for a signature and hands out the compiled function itself.

    numba's dispatcher would look at the types of some twenty arrays at each call, which takes as long as the work. The
    price: nobody checks that arrays have the right layout, so only arrays made by `new_cache` and `Engine` may come.
    """

    def decorate(function: Callable[..., Any]) -> Any:
        dispatcher = njit(result(*arguments))(function)
        (compiled,) = dispatcher.overloads.values()
        _DISPATCHERS[compiled.entry_point] = dispatcher
        return compiled.entry_point

    # Without the JIT numpy would warn of the unsigned overflows that hashing and random numbers are made of.
    return decorate if JIT_ON else np.errstate(over="ignore")


def on_cache(result: Any, *arguments: Any) -> Callable[[Callable[..., Any]], Any]:
    """`entry_point` of a function whose first argument is the `Cache`."""
    return entry_point(result, CACHE_TYPE, *arguments)


def with_hooks(result: Any, *arguments: Any) -> Callable[[Callable[..., Any]], Any]:
    """`entry_point` of a function whose first argument is the `Cache` and whose last one is a binding of hooks."""
    return entry_point(result, CACHE_TYPE, *arguments, BINDING_TYPE)
