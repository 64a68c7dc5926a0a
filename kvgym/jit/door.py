"""All code comes to numba by this door: cached compilation, and record arrays that work with the JIT on and off.

With ``NUMBA_DISABLE_JIT=1`` the same functions run as plain Python and give the same integers. With
``KVGYM_PLAIN_JIT=1`` they are compiled as numba's manual says, ``njit(cache=True)``: slower to compile, equal in
result, and with nothing in it that numba does not promise.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING, Any

import numba
import numpy as np
from numba.core.sigutils import normalize_signature
from numba.core.typeinfer import register_dispatcher

from kvgym.jit.fingerprint import fingerprint
from kvgym.jit.parts import part
from kvgym.jit.storage import Storage, cache_folder

JIT_ON: bool = not numba.config.DISABLE_JIT
"""False when ``NUMBA_DISABLE_JIT=1`` was set before the import."""
PLAIN: bool = os.environ.get("KVGYM_PLAIN_JIT") == "1"
"""True when ``KVGYM_PLAIN_JIT=1`` was set before the import."""

if TYPE_CHECKING:

    def i64(value: Any) -> int:
        """Return `value` as a 64-bit integer."""

else:
    i64 = np.int64  # record fields are 32-bit; arithmetic on them must not be


def njit(*signature: Any, allocates: bool = False) -> Callable[[Callable[..., Any]], Any]:
    """Return the decorator that compiles a function with kvgym's settings; with a signature it compiles at import.

    Without the JIT the function is returned as it is. Without a signature it is a part (`parts`), inlined into the
    compiled functions that call it: a call passes each of some twenty arrays as seven words. If Python calls it, it is
    compiled for itself, and cached. A function that makes arrays must say ``allocates=True``: all others are compiled
    without numba's reference counting, which cost two thirds of the engine's time (an atomic increment and decrement at
    each access to a tuple's array; numba drops them only where it can prove them idle).
    """

    def decorate(function: Callable[..., Any]) -> Any:
        if not JIT_ON:
            return function
        settings = {"nogil": True, "error_model": "numpy"}
        if PLAIN:
            return _plain(function, signature, settings)
        settings["_nrt"] = allocates
        door = cache(lambda: _compiled(function, signature, settings))
        return door() if signature else part(function, settings, door)

    return decorate


def _compiled(function: Any, signature: tuple[Any, ...], settings: dict[str, Any]) -> Any:
    """Return `function` compiled for itself, from the cache if it is there."""
    mark = _name_apart(function)
    dispatcher = numba.njit(**settings)(function)
    if mark is not None:
        dispatcher._cache = Storage(function.__name__, f"{mark} {settings}")
    with register_dispatcher(dispatcher):  # it may call itself, whose name is yet to be defined
        for each in signature:
            arguments, result = normalize_signature(each)
            dispatcher.compile(result(*arguments) if result is not None else arguments)
            dispatcher.disable_compile()
    return dispatcher


def _plain(function: Any, signature: tuple[Any, ...], settings: dict[str, Any]) -> Any:
    """Return what numba makes of `function`; its cache looks at one file, but the name tells what stands in others."""
    # numba would not find again what closes over compiled functions
    kept = _name_apart(function) is not None and function.__closure__ is None
    before, numba.config.CACHE_DIR = numba.config.CACHE_DIR, str(cache_folder() / "plain")
    try:
        return numba.njit(*signature, cache=kept, **settings)(function)
    finally:
        numba.config.CACHE_DIR = before


def _name_apart(function: Any) -> str | None:
    """Give a function a name that tells it from all others, and return its fingerprint if it has one.

    numba names machine code by the function's qualified name and a count of its process. Code of two closures of one
    factory, compiled in two processes and loaded from the cache into a third, would share a name, and the third process
    would run one of them for both.
    """
    mark = fingerprint(function)
    function.__qualname__ = f"_{(mark or uuid.uuid4().hex)[:16]}.{function.__qualname__}"
    return mark


def record_zeros(shape: int | tuple[int, ...], dtype: np.dtype) -> np.ndarray:
    """Return zeroed records of `dtype` whose items allow ``array[i].field`` in compiled code and in plain Python."""
    return as_records(np.zeros(shape, dtype))


def as_records(array: np.ndarray) -> np.ndarray:
    """Return `array` (structured) in the form that compiled functions take in this process; no copy."""
    return array if JIT_ON else array.view(np.recarray)
