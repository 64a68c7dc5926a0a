from __future__ import annotations

import inspect

import pytest

from controllers.routing.cache_aware import CacheAware
from controllers.routing.cache_aware_tuned import CacheAwareTuned


def test_constants__only_the_threshold_differs_from_the_release():
    def defaults(cls):
        return {name: option.default for name, option in inspect.signature(cls).parameters.items()}

    assert defaults(CacheAwareTuned) == defaults(CacheAware) | {"cache_threshold": 0.49}
    assert CacheAwareTuned().cache_threshold == 0.49


@pytest.mark.parametrize(("cls", "expected"), [(CacheAware, 0), (CacheAwareTuned, 1)])
def test_match_of_four_tenths__is_enough_for_the_release_only(cls, expected, start, ask):
    router = start(cls(), 2)
    router.tree.insert(0, 1, 0.0)
    assert router.act(ask(2, [3, 0], prompt_chars=1000)) == expected
