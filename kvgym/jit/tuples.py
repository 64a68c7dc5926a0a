"""Compiled functions pass named tuples of arrays as one value under a short name.

numba takes a tuple apart at every call, down to the seven words of each array, and puts it together again in the called
function; and it writes the whole type, every field of every record, into the name of each compiled function. For the
engine's tuples of some twenty arrays that was half of the code that the compiler had to read.
"""

from __future__ import annotations

import hashlib
from typing import Any, TypeVar

from numba import types
from numba.core.datamodel.models import TupleModel
from numba.extending import register_model, typeof_impl

from kvgym.jit.door import PLAIN

_Class = TypeVar("_Class", bound=type)


class _Whole(types.NamedTuple):
    """numba's type of such a tuple; where it is not a call's argument it is like any named tuple's."""

    def __init__(self, kinds: Any, cls: Any) -> None:
        super().__init__(kinds, cls)
        fields = hashlib.sha256(repr((cls._fields, kinds)).encode()).hexdigest()
        self.name = f"{cls.__name__}_{fields[:16]}"


@register_model(_Whole)
class _WholeModel(TupleModel):
    """How it is passed: as it is."""

    def get_argument_type(self) -> Any:
        return self.get_value_type()

    def as_argument(self, builder: Any, value: Any) -> Any:
        return value

    def from_argument(self, builder: Any, value: Any) -> Any:
        return value


def whole(cls: _Class) -> _Class:
    """Class decorator: compiled functions pass values of this NamedTuple as one."""
    if PLAIN:
        return cls

    @typeof_impl.register(cls)
    def _typeof(value: Any, context: Any) -> Any:
        return _Whole([typeof_impl(item, context) for item in value], cls)

    return cls
