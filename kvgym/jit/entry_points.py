"""Compiles entry points for explicit signatures and hands out the compiled functions themselves, without dispatchers.

The types that signatures are made of are here too, so that no other room imports numba.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numba
import numpy as np
from numba import types

from kvgym.jit.door import JIT_ON, njit

INT, FLOAT, VOID, BOOL = types.int64, types.float64, types.void, types.boolean
INTS = types.int32[::1]
LENGTHS = types.int64[::1]
FLAGS = types.boolean[::1]
MATRIX = types.int64[:, ::1]
PAIR = types.UniTuple(types.int64, 2)

_DISPATCHERS: dict[Callable[..., Any], Any] = {}


def type_of(value: Any) -> Any:
    """Return numba's type of `value` for signatures; None without the JIT, where nobody reads it."""
    return numba.typeof(value) if JIT_ON else None


def records_type(dtype: np.dtype) -> Any:
    """Return the type of a contiguous array of records, as `numpy.zeros` makes it; None without the JIT."""
    return numba.from_dtype(dtype)[::1] if JIT_ON else None


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
