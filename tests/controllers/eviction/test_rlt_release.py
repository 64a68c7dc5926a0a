"""The three phase triggers of the released RLT code, one by one, and what it marks when."""

from __future__ import annotations

from typing import Any

import pytest


def state(cache: Any) -> tuple[set[str], set[str], int]:
    """Marked prefixes, candidate leaves, and phases so far."""
    return cache.marked(), cache.candidates(), int(cache.cache.workers["epoch"][0])


def test_marks__on_insert_not_on_look_up(words: Any) -> None:
    """A look-up marks nothing but the upper half that it splits off; whole nodes count."""
    cache = words("rlt_release", 20, ["abcd", "abx", "q"])
    cache.put("abcd")
    assert state(cache) == ({"a", "ab", "abc", "abcd"}, set(), 0)
    cache.new_phase()
    cache.look("abcd")
    assert state(cache) == (set(), {"abcd"}, 1)
    cache.look("abx")
    assert state(cache) == ({"a", "ab"}, {"abcd"}, 1)
    cache.put("abx")
    assert state(cache) == ({"a", "ab", "abx"}, {"abcd"}, 1)
    assert cache.cache.workers["marked"][0] == 3


def test_trigger_a__marks_reach_the_pool_size(words: Any) -> None:
    """At B marked tokens (not B + 1) all marks go, then the node at hand and its ancestors are marked again."""
    cache = words("rlt_release", 10, ["aaaa", "bbbb", "aaaacc"])
    cache.put("aaaa")
    cache.put("bbbb")
    assert state(cache)[1:] == (set(), 0)
    cache.put("aaaacc")
    assert state(cache) == ({"a", "aa", "aaa", "aaaa", "aaaac", "aaaacc"}, {"bbbb"}, 1)
    assert cache.cache.workers["marked"][0] == 6


def after_a(words: Any) -> Any:
    """16 unmarked tokens in two leaves and 4 marked ones fill a pool of 20."""
    cache = words("rlt_release", 20, ["aaaaaaaa", "bbbbbbbb", "cccc"])
    for word in ("aaaaaaaa", "bbbbbbbb", "cccc"):
        cache.put(word)
    assert state(cache) == ({"c", "cc", "ccc", "cccc"}, {"aaaaaaaa", "bbbbbbbb"}, 1)
    return cache


def test_evict__takes_unmarked_leaves_without_a_trigger(words: Any) -> None:
    cache = after_a(words)
    assert cache.evict(0, 15) == 15  # 15 + 4 < 20, and 16 tokens are there to take
    assert state(cache)[0] == {"c", "cc", "ccc", "cccc"} and state(cache)[2] == 1


def test_trigger_b__the_demand_and_the_marks_reach_the_pool_size(words: Any) -> None:
    cache = after_a(words)
    assert cache.evict(0, 16) == 16  # the candidates would do, but 16 + 4 >= 20
    assert state(cache)[0] == set() and state(cache)[2] == 2
    assert cache.cache.workers["marked"][0] == 0


def test_trigger_c__the_candidates_are_too_few(words: Any) -> None:
    cache = after_a(words)
    cache.evict(0, 14)
    assert sum(len(word) for word in cache.candidates()) == 2
    assert cache.evict(0, 3) == 3  # 3 + 4 < 20, and 2 tokens are there to take
    assert state(cache)[0] == set() and state(cache)[2] == 2


def test_trigger_c__clears_inner_nodes_even_if_every_leaf_is_a_candidate(words: Any) -> None:
    """x and yyyyy are the unmarked leaves, pppppp above x is marked: 8 > 6, so it takes part as soon as x is gone.

    Otherwise all of yyyyy would have to go first.
    """
    left = set()
    for seed in range(40):
        cache = words("rlt_release", 40, ["ppppppx", "yyyyy"], seed=seed)
        for word in ("ppppppx", "yyyyy"):
            cache.put(word)
        cache.new_phase()
        cache.put("ppppppx", 6)
        assert state(cache)[:2] == ({"p" * n for n in range(1, 7)}, {"ppppppx", "yyyyy"})
        assert cache.evict(0, 8) == 8
        left.add(cache.peek(0, cache.nodes["yyyyy"], 5))
    assert left > {0}


@pytest.mark.parametrize("page", [1, 16])
def test_evict__frees_what_it_can(words: Any, page: int) -> None:
    cache = words("rlt_release", 10, ["abcdef", "abxy"], page)
    cache.put("abcdef")
    cache.put("abxy")
    cache.lock(0, cache.look("abcdef", 3)[1])
    assert cache.evict(0, 9 * page) == 5 * page  # d, e, f, x, y
    assert cache.resident() == {"a", "ab", "abc"}
    assert cache.evict(0, 1) == 0
    cache.check()
