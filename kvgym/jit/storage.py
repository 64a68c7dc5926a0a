"""A compiled function is kept in a file that is named by its fingerprint, in a flat folder that processes can share."""

from __future__ import annotations

import hashlib
import os
import pickle
import sys
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import Any

import numba
import numpy as np
from numba.core.caching import NullCache
from numba.core.compiler import CompileResult
from numba.core.serialize import dumps

from kvgym.jit.fingerprint import tell_types

_notices: list[str] = []


@cache
def cache_folder() -> Path:
    """Return the folder for compiled code, in ``$KVGYM_CACHE``, ``$XDG_CACHE_HOME/kvgym`` or ``~/.cache/kvgym``.

    It has a name of its own for each version of this room's sources, of Python and of the libraries.
    """
    base = os.environ.get("KVGYM_CACHE") or os.path.join(
        os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"), "kvgym"
    )
    versions = (numba.__version__, np.__version__, sys.version_info[:2])
    digest = hashlib.sha256(repr(versions).encode())
    for file in sorted(Path(__file__).parent.glob("*.py")):
        digest.update(file.read_bytes())
    return Path(base) / digest.hexdigest()[:16]


@contextmanager
def announced(text: str) -> Iterator[None]:
    """Say `text` on stderr, once, if a function has to be compiled meanwhile."""
    _notices.append(text)
    try:
        yield
    finally:
        _notices.clear()


class Storage(NullCache):
    """numba's interface to what is kept of one function: a file for each signature and kind of CPU.

    Args:
        name: of the function, for people.
        mark: its fingerprint and settings.
    """

    def __init__(self, name: str, mark: str) -> None:
        self._name, self._mark = name, mark

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        """Return the compiled function for a signature or argument types; None if it is not there."""
        target_context.refresh()
        path = self._path(sig, target_context.codegen())
        if path is None or not path.exists():
            while _notices:
                print(_notices.pop(), file=sys.stderr, flush=True)
            return None
        return CompileResult._rebuild(target_context, *pickle.loads(path.read_bytes()))

    def save_overload(self, sig: Any, data: Any) -> None:
        """Keep what was compiled, unless it holds addresses of this process; without a place for it nothing is kept."""
        path = self._path(sig, data.codegen)
        if path is None or data.lifted or data.library.has_dynamic_globals:
            return
        part = path.with_suffix(f".{uuid.uuid4().hex}")
        with suppress(OSError):
            path.parent.mkdir(parents=True, exist_ok=True)
            part.write_bytes(dumps(data._reduce()))
            part.replace(path)  # at once: other processes see all of it or nothing

    def _path(self, sig: Any, codegen: Any) -> Path | None:
        told = tell_types(sig)
        digest = hashlib.sha256(repr((self._mark, told, codegen.magic_tuple())).encode()).hexdigest()
        return cache_folder() / f"{self._name}-{digest[:32]}.nbc" if told is not None else None
