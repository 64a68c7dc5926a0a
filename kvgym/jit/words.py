"""Compiled values are written to plain memory once and read back inside compiled code for nothing.

Passing a tuple of arrays or a first-class function from Python costs microseconds each time: numba looks at every
array and resolves every function anew. A word form is the value as compiled code holds it, so it contains addresses of
this process: it is never pickled, and whoever writes it keeps alive what it was made from.
"""

from __future__ import annotations

from typing import Any

from numba import types

WORDS = types.int64[::1]
"""The array that a value is written to, or a row of a matrix of them."""


def word_form(kind: Any, size: int) -> tuple[Any, Any]:
    """Return the compiled functions ``write(words, value)`` and ``read(words)`` for values of the numba type `kind`.

    Args:
        kind: numba type of the value.
        size: length of the arrays that it is written to; a value that needs more is an error when this is compiled.
    """
    from numba.extending import intrinsic

    def place(context: Any, builder: Any, words_type: Any, words: Any) -> Any:
        """Return the address of `words` as a pointer to the compiled form of `kind`."""
        form = context.get_value_type(kind)
        if context.get_abi_sizeof(form) > 8 * size:
            raise TypeError(f"a {kind.name} takes {context.get_abi_sizeof(form)} bytes, more than {size} words")
        return builder.bitcast(context.make_array(words_type)(context, builder, words).data, form.as_pointer())

    @intrinsic
    def write(typing: Any, words: Any, value: Any) -> Any:
        """Store `value` in `words`."""

        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            builder.store(_unowned(builder, kind, args[1]), place(context, builder, signature.args[0], args[0]))
            return context.get_dummy_value()

        return types.void(words, kind), codegen

    @intrinsic
    def read(typing: Any, words: Any) -> Any:
        """Return the value stored in `words`."""

        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            return builder.load(place(context, builder, signature.args[0], args[0]))

        return kind(words), codegen

    return write, read


def _unowned(builder: Any, kind: Any, value: Any, path: tuple[int, ...] = ()) -> Any:
    """Return `value` with arrays that numba takes for another's memory, so that it counts no references to them."""
    if isinstance(kind, types.Array):
        owner = (*path, 0)
        return builder.insert_value(value, builder.extract_value(value, owner).type(None), owner)
    for i, part in enumerate(kind.types if isinstance(kind, types.BaseTuple) else ()):
        value = _unowned(builder, part, value, (*path, i))
    return value
