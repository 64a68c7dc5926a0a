"""A policy's hooks are kept as plain memory, so that a call from Python does not look the functions up again.

numba resolves a first-class function argument through Python at every call: some 50 microseconds for each hook, more
than a whole step of the engine. `bind` does it once for each policy and keeps the resolved values; `hooks_of` reads
them back inside compiled code for nothing. The words live no longer than the hooks that they came from (see `words`).
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np

from kvgym.engine.cache.policy import Hooks, Policy
from kvgym.jit.door import JIT_ON, njit
from kvgym.jit.entry_points import types
from kvgym.jit.words import WORDS as BINDING_TYPE
from kvgym.jit.words import word_form

SIZE = 16
"""Length of a binding: four hooks of at most four pointers (numba keeps two or three for each)."""

if JIT_ON:
    from kvgym.engine.cache.policy import HOOK_TYPES

    _write, _read = word_form(types.NamedTuple(HOOK_TYPES, Hooks), SIZE)

    @njit(types.void(BINDING_TYPE, *HOOK_TYPES))
    def _bind(words: Any, enter: Any, leave: Any, touch: Any, evict: Any) -> None:
        _write(words, Hooks(enter, leave, touch, evict))


def bind(policy: Policy) -> Any:
    """Return the hooks of `policy` in the form that entry points take; keep the policy as long as this is used."""
    hooks = Hooks(policy.enter, policy.leave, policy.touch, policy.evict)
    return _words_of(hooks) if JIT_ON else hooks


@lru_cache(maxsize=64)
def _words_of(hooks: Hooks) -> np.ndarray:
    words = np.zeros(SIZE, np.int64)
    _bind(words, *hooks)
    return words


@njit()
def hooks_of(bound: Any) -> Any:
    """Return the `Hooks` that `bind` has stored."""
    return _read(bound) if JIT_ON else bound
