"""An eviction policy plugs into the engine with four compiled hooks of fixed signatures.

A policy is one file in `controllers/eviction/` (or in a user's package) that ends in ``POLICY = Policy(...)``:

- ``enter(c, w, s)``            slot s has become an evictable leaf of worker w: put it into ``c.order[w]``.
- ``leave(c, w, s)``            slot s stops being one (locked, or it got a child): take it out.
- ``touch(c, w, s, kind)``      slot s was passed, made or split (`kvgym.engine.cache.radix` TOUCH_*), in prompt order.
- ``evict(c, w, tokens) -> n``  free at least `tokens` tokens if the evictable leaves allow, return how many were freed.

The engine calls them as first-class functions, so a new policy never recompiles the engine. State lives in the arrays
that the hooks get: the row ``c.order[w, :c.workers[w].leaves]``, the slot fields `key`, `epoch`, `mark`, `pos`, the
worker fields `unmarked`, `epoch`, `marked`, the random stream ``c.rng[w]`` and ``c.memory[w]``. The row must hold
exactly the evictable leaves, with ``slots[s].pos`` the index of s in it: `heap` (smallest key first) and `leaflist`
(candidates first) are two ready containers. No policy may scan all nodes per eviction.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from kvgym.engine.state import OPTIONS, Cache, new_cache
from kvgym.forest.forest import NODE
from kvgym.jit.door import JIT_ON, njit, record_zeros
from kvgym.jit.entry_points import type_of, types


class Hooks(NamedTuple):
    """The four hooks, as the engine passes them around."""

    enter: Any
    leave: Any
    touch: Any
    evict: Any


@dataclass(frozen=True)
class Policy:
    """An eviction policy: its hooks, made with `enter_hook`, `leave_hook`, `touch_hook` and `evict_hook`.

    `memory` is how many numbers (float64, zero at first) it keeps per worker in ``c.memory[w]``. The first of them are
    the `constants`, if it has any: each row begins with them and a restarted worker keeps them. With `oracle` that row
    holds the future instead (`kvgym.engine.future`), and the policy runs only where an oracle is allowed.
    """

    enter: Any
    leave: Any
    touch: Any
    evict: Any
    memory: int = 0
    constants: tuple[float, ...] = ()
    oracle: bool = False


def write_constants(cache: Cache, policy: Policy) -> None:
    """Write the constants of `policy` to the memory of every worker."""
    count = len(policy.constants)
    cache.memory[:, :count] = policy.constants
    cache.options["constants"] = count


def not_a_policy(value: Any) -> str | None:
    """Return what an eviction policy has to be if `value` is none (the name table checks plug-ins with it)."""
    return (
        None
        if isinstance(value, Policy)
        else "a kvgym.engine.cache.policy.Policy (four hooks, made as its module says)"
    )


def example_cache() -> Cache:
    """Return a `Cache` of the shapes that the signatures are made from."""
    return new_cache(record_zeros(1, NODE), np.array([16]), record_zeros(1, OPTIONS), seed=0, slots=4, leaves=4)


CACHE_TYPE = type_of(example_cache())
_SLOT = types.void(CACHE_TYPE, types.int64, types.int64) if JIT_ON else None
_TOUCH = types.void(CACHE_TYPE, types.int64, types.int64, types.int64) if JIT_ON else None
_EVICT = types.int64(CACHE_TYPE, types.int64, types.int64) if JIT_ON else None
HOOK_TYPES = tuple(types.FunctionType(hook) for hook in (_SLOT, _SLOT, _TOUCH, _EVICT)) if JIT_ON else ()

enter_hook = njit(_SLOT)
"""Decorator that compiles an `enter` hook."""
leave_hook = njit(_SLOT)
"""Decorator that compiles a `leave` hook."""
touch_hook = njit(_TOUCH)
"""Decorator that compiles a `touch` hook."""
evict_hook = njit(_EVICT)
"""Decorator that compiles an `evict` hook."""
