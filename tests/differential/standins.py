"""Stand-ins for packages that SGLang imports on the way to its RadixCache but that the cache never calls.

Importing this module lets ``import triton`` and its like succeed where the package is absent, so that the oracle's
environment needs neither a GPU nor two gigabytes. A package that is installed is used as it is. A stand-in can only be
named, subclassed, subscripted and used as a decorator; nothing in it computes anything.
"""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import sys
import types
from collections.abc import Sequence
from typing import Any

PACKAGES = frozenset(
    "IPython PIL aiohttp compressed_tensors gguf httpcore2 httpx2 orjson psutil pybase64 pydantic pydantic_core "
    "requests sentencepiece soundfile starlette torchvision triton tvm_ffi zmq".split()
)
"""Top-level modules that may be stood in for, all of them and no others."""


def _is_special(name: str) -> bool:
    return name.startswith("__") and name.endswith("__")


class _Named(type):
    """Class of stand-in classes: every attribute is another stand-in class, every subscript the class itself."""

    def __getattr__(cls, name: str) -> Any:
        if _is_special(name):
            raise AttributeError(name)
        return _stand_in(name)

    def __getitem__(cls, item: Any) -> Any:
        return cls


class _StandIn(metaclass=_Named):
    """Base of the stand-in classes; ``@x`` and ``@x(...)`` leave what they decorate as it is."""

    def __new__(cls, *args: Any, **kwargs: Any) -> Any:
        return _decorated(*args)

    def __init_subclass__(cls, **kwargs: Any) -> None:
        """Accept the class keywords of whatever is stood in for."""


def _decorated(*args: Any, **kwargs: Any) -> Any:
    return args[0] if len(args) == 1 and callable(args[0]) else _decorated


def _stand_in(name: str) -> _Named:
    return _Named(name, (_StandIn,), {})


class _Module(types.ModuleType):
    __version__ = "0.0.0"

    def __getattr__(self, name: str) -> Any:
        if _is_special(name):
            raise AttributeError(name)
        value = _stand_in(name)
        setattr(self, name, value)  # the same name is the same class from now on
        return value


class _Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: types.ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname.partition(".")[0] not in PACKAGES:
            return None
        return importlib.machinery.ModuleSpec(fullname, self, is_package=True)

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> types.ModuleType:
        return _Module(spec.name)

    def exec_module(self, module: types.ModuleType) -> None:
        """Nothing to run: a stand-in makes its names when they are asked for."""


sys.meta_path.append(_Finder())
