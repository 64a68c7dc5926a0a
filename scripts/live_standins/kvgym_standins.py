"""Stand-ins for the two packages that SGLang imports and that exist for GPUs only: torchvision and sgl_kernel.

The set-up script copies this file and a .pth line that imports it into the serving environment. A package that is
really installed is used as it is. A stand-in can be named, subclassed and compared; making an object of it or calling
it raises, so nothing is ever computed wrongly. Two names are real: `InterpolationMode`, whose members SGLang lists,
and `assign_req_to_token_pool_cpu`, the one kernel that serving on a CPU without AMX calls.
"""

from __future__ import annotations

import enum
import importlib.abc
import importlib.machinery
import sys
import types
from collections.abc import Sequence
from typing import Any

PACKAGES = ("torchvision", "sgl_kernel")


class InterpolationMode(enum.Enum):
    """How an image is resized."""

    NEAREST = "nearest"
    NEAREST_EXACT = "nearest-exact"
    BILINEAR = "bilinear"
    BICUBIC = "bicubic"
    BOX = "box"
    HAMMING = "hamming"
    LANCZOS = "lanczos"


def assign_req_to_token_pool_cpu(
    req_pool_indices: Any, req_to_token: Any, start_offset: Any, end_offset: Any, out_cache_loc: Any, *_: Any
) -> None:
    """Write each request's new KV slots into its row of the request-to-token table.

    All arguments are CPU tensors: rows (requests,), the table (rows, tokens), first and last token of each request
    (requests,), and the slots of all requests one after another.
    """
    begin = 0
    for row, start, end in zip(req_pool_indices.tolist(), start_offset.tolist(), end_offset.tolist(), strict=True):
        size = end - start
        req_to_token[row, start:end] = out_cache_loc[begin : begin + size].to(req_to_token.dtype)
        begin += size


class _StandIn(type):
    """Class of the stand-ins: an attribute is another stand-in, a call raises."""

    def __getattr__(cls, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return _StandIn(name, (), {})

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        raise NotImplementedError(f"{cls.__name__} is a stand-in of kvgym's CPU serving environment; it needs a GPU")


class _Module(types.ModuleType):
    __version__ = "0.0.0"

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        real = {"InterpolationMode": InterpolationMode, "assign_req_to_token_pool_cpu": assign_req_to_token_pool_cpu}
        value = real.get(name) or _StandIn(name, (), {})
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


sys.meta_path.append(_Finder())  # last, so that an installed package comes first
