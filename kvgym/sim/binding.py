"""A policy's hooks as plain memory, so that a call from Python does not look the compiled functions up again.

numba resolves a first-class function argument through Python at every call: some 50 microseconds for each hook, more
than a whole step of the engine. `bind` does it once and keeps the resolved values; `hooks_of` reads them back inside
compiled code for nothing. The words are addresses of this process: they are never pickled and live no longer than the
policy that they came from.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import types

from kvgym.jit import JIT_ON, njit
from kvgym.sim.policy import Hooks, Policy

WORDS = 16
"""Length of a binding: four hooks of at most four pointers (numba keeps two or three for each)."""
BINDING_TYPE = types.int64[::1]

if JIT_ON:
    from numba.extending import intrinsic

    from kvgym.sim.policy import HOOK_TYPES

    _HOOKS_TYPE = types.NamedTuple(HOOK_TYPES, Hooks)

    def _place(context: Any, builder: Any, words_type: Any, words: Any) -> Any:
        """Return the address of `words` as a pointer to the compiled form of `Hooks`."""
        form = context.get_value_type(_HOOKS_TYPE)
        if context.get_abi_sizeof(form) > 8 * WORDS:
            raise TypeError(f"numba's first-class functions have outgrown {WORDS // 4} words each; raise WORDS")
        return builder.bitcast(context.make_array(words_type)(context, builder, words).data, form.as_pointer())

    @intrinsic
    def _write(typing: Any, words: Any, hooks: Any) -> Any:
        """Store the hooks in `words`, int64 (WORDS,)."""

        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            builder.store(args[1], _place(context, builder, signature.args[0], args[0]))
            return context.get_dummy_value()

        return types.void(words, _HOOKS_TYPE), codegen

    @intrinsic
    def _read(typing: Any, words: Any) -> Any:
        """Return the hooks stored in `words`."""

        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            return builder.load(_place(context, builder, signature.args[0], args[0]))

        return _HOOKS_TYPE(words), codegen

    @njit(types.void(BINDING_TYPE, *HOOK_TYPES))
    def _bind(words: Any, enter: Any, leave: Any, touch: Any, evict: Any) -> None:
        _write(words, Hooks(enter, leave, touch, evict))


def bind(policy: Policy) -> Any:
    """Return the hooks of `policy` in the form that entry points take; keep the policy as long as this is used."""
    if not JIT_ON:
        return Hooks(policy.enter, policy.leave, policy.touch, policy.evict)
    words = np.zeros(WORDS, np.int64)
    _bind(words, policy.enter, policy.leave, policy.touch, policy.evict)
    return words


@njit()
def hooks_of(bound: Any) -> Any:
    """Return the `Hooks` that `bind` has stored."""
    return _read(bound) if JIT_ON else bound
