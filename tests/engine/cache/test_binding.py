from __future__ import annotations

import numpy as np
from numba import types

from controllers.eviction import EVICTION
from kvgym.engine.cache.binding import BINDING_TYPE, bind, hooks_of
from kvgym.engine.cache.policy import CACHE_TYPE, Policy, enter_hook, evict_hook, leave_hook, touch_hook
from kvgym.engine.state import OPTIONS, new_cache
from kvgym.forest.forest import NODE
from kvgym.jit.door import JIT_ON, njit, record_zeros


def write(place: int) -> dict:
    """Return the four hooks of a policy that note who was called, `place` telling policies apart."""

    def enter(c, w, s):
        c.scratch[place] = 10 * w + s

    def leave(c, w, s):
        c.scratch[place + 1] = 10 * w + s

    def touch(c, w, s, kind):
        c.scratch[place + 2] = 100 * w + 10 * s + kind

    def evict(c, w, tokens):
        c.scratch[place + 3] = tokens
        return tokens + place

    return {
        "enter": enter_hook(enter),
        "leave": leave_hook(leave),
        "touch": touch_hook(touch),
        "evict": evict_hook(evict),
    }


@njit(*([types.int64(CACHE_TYPE, BINDING_TYPE)] if JIT_ON else []))
def call_all(c, bound):
    hooks = hooks_of(bound)
    hooks.enter(c, 1, 2)
    hooks.leave(c, 3, 4)
    hooks.touch(c, 5, 6, 7)
    return hooks.evict(c, 0, 8)


def test_bind__each_hook_is_called_with_its_arguments_and_policies_stay_apart():
    cache = new_cache(record_zeros(1, NODE), np.array([16]), record_zeros(1, OPTIONS), seed=0, leaves=8)
    bound = [bind(Policy(**write(place))) for place in (0, 4)]
    assert [call_all(cache, each) for each in bound] == [8, 12]
    assert cache.scratch[:8].tolist() == [12, 34, 567, 8] * 2


def test_bind__works_for_every_policy():
    words = {name: bytes(np.asarray(bind(EVICTION.load(name)))) for name in EVICTION} if JIT_ON else {}
    assert len(set(words.values())) == len(words)


def test_bind__once_for_each_policy():
    one, other = (Policy(**write(place)) for place in (0, 4))
    same = Policy(one.enter, one.leave, one.touch, one.evict, memory=1)
    assert list(bind(one)) == list(bind(same))
    assert (bind(one) is bind(same)) == JIT_ON
    assert list(bind(one)) != list(bind(other))
