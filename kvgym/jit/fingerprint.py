"""The fingerprint of a function is all that its compiled code depends on, by value; docstrings and lines do not count.

Counted are bytecode, defaults, what it closes over and the globals that it reads, and so on for all compiled functions
among these. A function that refers to anything else has no fingerprint; nor has one of a notebook, where a name may
mean something else by the time of the compilation.
"""

from __future__ import annotations

import builtins
import dis
import hashlib
import os
import sys
from collections.abc import Callable
from functools import cache, singledispatch
from types import BuiltinFunctionType, CodeType, EllipsisType, FunctionType, ModuleType, NoneType
from typing import Any

import numpy as np
from numba import types
from numba.core.dispatcher import Dispatcher
from numba.core.extending import _Intrinsic
from numba.core.typing import Signature

_LIBRARIES = frozenset(("numba", "numpy", *sys.stdlib_module_names))
"""What is theirs is known by name: `kvgym.jit.storage` asks for their versions."""
_Number = Callable[[FunctionType], int]


class _UntracedError(Exception):
    """Nobody knows what a value means to compiled code."""


def fingerprint(function: FunctionType) -> str | None:
    """Return 32 hexadecimal digits, the same in every process, or None: there is no telling, so never cache it."""
    found = [function]

    def number(other: FunctionType) -> int:
        if other not in found:
            found.append(other)
        return found.index(other)

    try:
        told = [_tell_function(each, number) for each in found]  # `found` grows meanwhile
    except _UntracedError:
        return None
    return hashlib.sha256(repr(told).encode()).hexdigest()[:32]


def tell_types(signature: Any) -> str | None:
    """Return a text for a signature or argument types, with the names of all tuples' fields; None as above."""
    try:
        return repr(_tell(signature, lambda function: 0))
    except _UntracedError:
        return None


def _tell_function(function: FunctionType, number: _Number) -> Any:
    if not os.path.exists(function.__code__.co_filename):
        raise _UntracedError
    text, paths = _read(function.__code__)
    try:
        values = [cell.cell_contents for cell in function.__closure__ or ()]
        values += [_look_up(function.__globals__, path) for path in paths]
    except (AttributeError, ValueError):  # it is yet to be defined
        raise _UntracedError from None
    values += [function.__defaults__, tuple((function.__kwdefaults__ or {}).items())]
    # What is kept names the modules of all functions, and loading it imports them.
    return function.__module__, text, [_tell(value, number) for value in values]


@cache
def _read(code: CodeType) -> tuple[str, list[tuple[str, ...]]]:
    """Return what `code` does, as a text, and the globals that it reads, each with the attributes that follow."""
    paths: list[tuple[str, ...]] = []
    used, follows = set(), False
    for step in dis.get_instructions(code):
        if step.opcode in dis.hasconst:
            used.add(step.arg)
        if step.opname == "LOAD_GLOBAL":
            paths.append((step.argval,))
            follows = True
        elif follows := follows and step.opname in ("LOAD_ATTR", "LOAD_METHOD"):
            paths[-1] = (*paths[-1], step.argval)
    consts = []
    for i, value in enumerate(code.co_consts):
        if isinstance(value, CodeType):
            text, more = _read(value)
            consts.append(text)
            paths += more
        elif i in used:  # a docstring is not
            consts.append(repr(value))
    names = code.co_names, code.co_varnames, code.co_freevars, code.co_cellvars
    counts = code.co_flags, code.co_argcount, code.co_posonlyargcount, code.co_kwonlyargcount
    return repr((code.co_code, code.co_exceptiontable, consts, names, counts)), list(dict.fromkeys(paths))


def _look_up(namespace: dict[str, Any], path: tuple[str, ...]) -> Any:
    """Return what `path` leads to, as far as it goes through modules."""
    value = namespace[path[0]] if path[0] in namespace else getattr(builtins, path[0])
    for name in path[1:]:
        if not isinstance(value, ModuleType):
            break
        value = getattr(value, name)
    return value


@singledispatch
def _tell(value: Any, number: _Number) -> Any:
    """Return nested tuples and lists of texts that say what `value` is; a function of ours gets a number."""
    module = str(value.__name__ if isinstance(value, ModuleType) else getattr(value, "__module__", ""))
    if isinstance(value, type | FunctionType | ModuleType) and module.partition(".")[0] in _LIBRARIES:
        return module, getattr(value, "__qualname__", "")
    if isinstance(value, type) and (fields := getattr(value, "_fields", None)):
        return module, value.__qualname__, fields, _tell(tuple(value.__dict__["_field_defaults"].items()), number)
    if isinstance(value, FunctionType) and module.startswith("kvgym.jit."):
        return number(value)
    raise _UntracedError  # another's plain function, too: `numba.extending.overload` may have put code in its place


@_tell.register(NoneType | bool | int | float | complex | str | bytes | EllipsisType)
@_tell.register(np.generic | np.dtype | np.ufunc | BuiltinFunctionType)
def _(value: Any, number: _Number) -> Any:
    return type(value).__qualname__, repr(value)


@_tell.register(tuple | list)
def _(value: Any, number: _Number) -> Any:
    return type(value).__qualname__, getattr(value, "_fields", ()), [_tell(item, number) for item in value]


@_tell.register
def _(value: np.ndarray, number: _Number) -> Any:
    if value.dtype.hasobject:
        raise _UntracedError
    return repr(value.dtype), value.shape, value.strides, hashlib.sha256(value.tobytes()).hexdigest()


@_tell.register(Dispatcher)
def _(value: Any, number: _Number) -> Any:
    settings = sorted(map(repr, {**value.targetoptions, **value.locals}.items()))
    fixed = [] if value._can_compile else [_tell(each, number) for each in value.nopython_signatures]
    return settings, fixed, number(value.py_func)


@_tell.register(_Intrinsic)
def _(value: Any, number: _Number) -> Any:
    return "intrinsic", number(value._defn)


@_tell.register
def _(value: types.Type, number: _Number) -> Any:
    if type(value).__module__.partition(".")[0] not in ("numba", "kvgym") or isinstance(value, types.Callable):
        raise _UntracedError
    made_of = getattr(value, "instance_class", tuple)
    parts = [each for held in vars(value).values() for each in (held if isinstance(held, tuple) else (held,))]
    told = [_tell(each, number) for each in parts if isinstance(each, types.Type | Signature)]
    return str(value), made_of.__module__, getattr(made_of, "_fields", ()), told


@_tell.register
def _(value: Signature, number: _Number) -> Any:
    return _tell((*value.args, value.return_type), number)
