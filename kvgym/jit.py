"""The one door to numba: cached compilation, and record arrays that work with the JIT on and off.

With ``NUMBA_DISABLE_JIT=1`` the same functions run as plain Python and give the same integers.

numba's own cache does not notice when a helper in *another* file changes. The cache folder is therefore keyed by a hash
of every source file that takes part in compiled code, the numba version and the Python version.
"""

from __future__ import annotations

import hashlib
import os
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numba
import numpy as np

JIT_ON: bool = not numba.config.DISABLE_JIT
"""False when ``NUMBA_DISABLE_JIT=1`` was set before the import."""

if TYPE_CHECKING:

    def i64(value: Any) -> int:
        """Return `value` as a 64-bit integer."""

else:
    i64 = np.int64  # record fields are 32-bit; arithmetic on them must not be

_ROOT = Path(__file__).resolve().parent.parent
_SOURCES = ("kvgym/jit.py", "kvgym/types.py", "kvgym/sim", "kvgym/workloads", "controllers")


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
def cache_folder() -> Path:
    """Return the folder for compiled code, in ``$KVGYM_CACHE``, ``$XDG_CACHE_HOME/kvgym`` or ``~/.cache/kvgym``."""
    base = os.environ.get("KVGYM_CACHE") or os.path.join(
        os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"), "kvgym"
    )
    return Path(base) / source_key()


def njit(*signature: Any, allocates: bool = False) -> Callable[[Callable[..., Any]], Any]:
    """Return the decorator that compiles a function with kvgym's settings; with a signature it compiles at import.

    Without the JIT the function is returned as it is. A function that makes arrays must say ``allocates=True``: all
    others are compiled without numba's reference counting, which cost two thirds of the engine's time (an atomic
    increment and decrement at each access to a tuple's array; numba drops them only where it can prove them idle).
    Functions without a signature are inlined: a call passes each of some twenty arrays as seven words.
    """

    def decorate(function: Callable[..., Any]) -> Any:
        if not JIT_ON:
            return function
        before = numba.config.CACHE_DIR
        numba.config.CACHE_DIR = str(cache_folder())
        try:
            settings = {"cache": True, "nogil": True, "error_model": "numpy", "_nrt": allocates}
            return numba.njit(*signature, **settings, forceinline=not signature)(function)
        finally:
            numba.config.CACHE_DIR = before

    return decorate


def record_zeros(shape: int | tuple[int, ...], dtype: np.dtype) -> np.ndarray:
    """Return zeroed records of `dtype` whose items allow ``array[i].field`` in compiled code and in plain Python."""
    return as_records(np.zeros(shape, dtype))


def as_records(array: np.ndarray) -> np.ndarray:
    """Return `array` (structured) in the form that compiled functions take in this process; no copy."""
    return array if JIT_ON else array.view(np.recarray)
