"""The one door to numba: cached compilation, and record arrays that work with the JIT on and off.

With ``NUMBA_DISABLE_JIT=1`` the same functions run as plain Python and give the same integers.

numba's own cache does not notice when a helper in *another* file changes. The cache folder is therefore keyed by a hash
of every source file that takes part in compiled code, the numba version and the Python version. Functions of other
packages (plug-ins, and what is compiled around them, such as a policy made from a rank) have folders of their own,
keyed by the sources of those packages too.
"""

from __future__ import annotations

import hashlib
import os
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path
from types import CellType, CodeType, FunctionType, ModuleType
from typing import TYPE_CHECKING, Any

import numba
import numpy as np

from kvgym.config.sources import package_files
from kvgym.jit.parts import part

JIT_ON: bool = not numba.config.DISABLE_JIT
"""False when ``NUMBA_DISABLE_JIT=1`` was set before the import."""

if TYPE_CHECKING:

    def i64(value: Any) -> int:
        """Return `value` as a 64-bit integer."""

else:
    i64 = np.int64  # record fields are 32-bit; arithmetic on them must not be

_ROOT = Path(__file__).resolve().parent.parent.parent
_INSIDE = frozenset(("kvgym", "controllers", "numba", "numpy", *sys.stdlib_module_names))
"""Packages whose changes `source_key` notices."""
_SOURCES = (
    "kvgym/jit",
    "kvgym/types.py",
    "kvgym/encoding",
    "kvgym/engine",
    "kvgym/knowledge",
    "kvgym/forest",
    "kvgym/logs",
    "controllers",
)


@cache
def source_key() -> str:
    """Return the hash that names this version's cache folder (16 hexadecimal digits)."""
    digest = hashlib.sha256(f"{numba.__version__} {sys.version_info[:2]} {np.__version__}".encode())
    for name in _SOURCES:
        place = _ROOT / name
        for file in sorted(place.rglob("*.py")) if place.is_dir() else [place]:
            digest.update(str(file.relative_to(_ROOT)).encode())
            digest.update(file.read_bytes())
    return digest.hexdigest()[:16]


@cache
def cache_folder(outside: frozenset[str] = frozenset()) -> Path:
    """Return the folder for compiled code, in ``$KVGYM_CACHE``, ``$XDG_CACHE_HOME/kvgym`` or ``~/.cache/kvgym``.

    Args:
        outside: modules of other packages that take part; their packages' sources count.
    """
    base = os.environ.get("KVGYM_CACHE") or os.path.join(
        os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"), "kvgym"
    )
    if not outside:
        return Path(base) / source_key()
    digest = hashlib.sha256(source_key().encode())
    for file in sorted({file for module in outside for file in package_files(module)}):
        digest.update(file.name.encode() + file.read_bytes())
    return Path(base) / f"{source_key()}-{digest.hexdigest()[:16]}"


def _outside(function: Any) -> frozenset[str]:
    """Return the modules outside kvgym that the code of `function` lies in or refers to.

    Followed are its globals, what it closes over, and the compiled functions among them.
    """
    found: set[str] = set()
    seen: set[int] = set()
    waiting = [function]
    while waiting:
        value = waiting.pop()
        code = getattr(value, "py_func", value)  # of what numba has compiled already
        if id(code) in seen or not isinstance(code, FunctionType | ModuleType):
            continue
        seen.add(id(code))
        module = code.__name__ if isinstance(code, ModuleType) else code.__module__
        own = module.partition(".")[0] in _INSIDE
        if not own:
            found.add(module)
        if isinstance(code, ModuleType) or not (code is function or hasattr(value, "py_func")):
            continue
        waiting += _captured(code)
        if code is function or not own:  # kvgym's functions call no others but those that they close over
            waiting += [code.__globals__[name] for name in code.__code__.co_names if name in code.__globals__]
    return frozenset(found)


def _captured(function: FunctionType) -> list[Any]:
    cells = [cell for cell in function.__closure__ or () if cell != CellType()]  # not those that are still empty
    return [cell.cell_contents for cell in cells]


def _identity(value: Any) -> str | None:
    """Return a text that tells a captured value from all others, in any process; None where none is known."""
    if value is None or isinstance(value, bool | int | float | str | np.generic):
        return repr(value)
    if isinstance(value, np.ndarray) and not value.dtype.hasobject:
        return f"{value.dtype} {value.shape} {hashlib.sha256(value.tobytes()).hexdigest()}"
    return getattr(value, "_uuid", None)  # of a compiled function: `_stable` has set it, or it is random


def _stable(dispatcher: Any) -> Any:
    """Return `dispatcher` with an identity that is the same in every process.

    numba gives each function a random one, which is part of the cache key of whatever closes over it: policies made by
    `kvgym.engine.cache.heap.keyed` would be compiled anew by every process. What the function calls is in the folder's
    key, what it closes over in its name (`_name_apart`).
    """
    function = dispatcher.py_func
    module = function.__module__
    # In a notebook nothing tells that a global has changed since.
    traced = module.partition(".")[0] in _INSIDE or package_files(module)
    if traced and None not in map(_identity, _captured(function)):
        code = function.__code__
        own = [code.co_firstlineno, code.co_code, code.co_names]
        own += [value for value in code.co_consts if not isinstance(value, CodeType)]
        digest = hashlib.sha256(repr(own).encode()).hexdigest()[:32]
        dispatcher._set_uuid(f"{module}.{function.__qualname__}:{digest}")
    return dispatcher


def _name_apart(function: Any) -> None:
    """Give a function with a closure a name that tells what it closes over.

    numba names machine code by the function's qualified name and a count of its process. Code of two closures of one
    factory, compiled in two processes and loaded from the cache into a third, would share a name, and the third process
    would run one of them for both.
    """
    if values := _captured(function):
        told = [_identity(value) or repr(value) for value in values]
        function.__qualname__ += f"_{hashlib.sha256(repr(told).encode()).hexdigest()[:16]}"


def njit(*signature: Any, allocates: bool = False) -> Callable[[Callable[..., Any]], Any]:
    """Return the decorator that compiles a function with kvgym's settings; with a signature it compiles at import.

    Without the JIT the function is returned as it is. Without a signature it is a part (`jit_parts`), inlined into the
    compiled functions that call it: a call passes each of some twenty arrays as seven words. If Python calls it, it is
    compiled for itself, and cached. A function that makes arrays must say ``allocates=True``: all others are compiled
    without numba's reference counting, which cost two thirds of the engine's time (an atomic increment and decrement at
    each access to a tuple's array; numba drops them only where it can prove them idle).
    """

    def decorate(function: Callable[..., Any]) -> Any:
        if not JIT_ON:
            return function
        _name_apart(function)
        settings = {"nogil": True, "error_model": "numpy", "_nrt": allocates}

        @cache
        def door() -> Any:
            before = numba.config.CACHE_DIR
            numba.config.CACHE_DIR = str(cache_folder(_outside(function)))
            try:
                return numba.njit(*signature, cache=True, **settings)(function)
            finally:
                numba.config.CACHE_DIR = before

        return door() if signature else _stable(part(function, settings, door))

    return decorate


def record_zeros(shape: int | tuple[int, ...], dtype: np.dtype) -> np.ndarray:
    """Return zeroed records of `dtype` whose items allow ``array[i].field`` in compiled code and in plain Python."""
    return as_records(np.zeros(shape, dtype))


def as_records(array: np.ndarray) -> np.ndarray:
    """Return `array` (structured) in the form that compiled functions take in this process; no copy."""
    return array if JIT_ON else array.view(np.recarray)
