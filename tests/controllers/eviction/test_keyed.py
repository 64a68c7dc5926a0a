"""Which leaf each keyed policy takes, and random_leaf's chances."""

from __future__ import annotations

from typing import Any

import pytest

from controllers.eviction import EVICTION
from kvgym.errors import UnknownNameError

NAMES = ["aa", "bbb", "cc", "dd", "ddx"]


def filled(words: Any, policy: str, **options: Any) -> Any:
    """Cache aa, bbb, cc; look up aa; insert bbb and cc again (two hits); add ddx; split dd off by a look-up."""
    cache = words(policy, 20, NAMES, **options)
    cache.put("aa", priority=2)
    cache.put("bbb", priority=1)
    cache.put("cc", priority=0)
    cache.look("aa")
    cache.put("bbb", priority=0)
    cache.put("cc", priority=0)
    cache.put("ddx", priority=1)
    cache.look("dd")
    cache.look("bbb")
    return cache


@pytest.mark.parametrize(
    ("policy", "order"),
    [
        # accesses: aa, cc, ddx with dd, bbb
        ("lru", ["aa", "cc", "ddx", "dd", "bbb"]),
        ("mru", ["bbb", "ddx", "dd", "cc", "aa"]),
        # creation: aa, bbb, cc, ddx, and dd by the split
        ("fifo", ["aa", "bbb", "cc", "ddx", "dd"]),
        ("filo", ["ddx", "dd", "cc", "bbb", "aa"]),
        # hits on insert: aa 1, ddx 1 and dd 1 with it, cc 2, bbb 2
        ("lfu", ["aa", "ddx", "dd", "cc", "bbb"]),
        ("slru", ["aa", "ddx", "dd", "cc", "bbb"]),
        # priority: cc 0, then 1: ddx, dd, bbb in order of access, then aa
        ("priority", ["cc", "ddx", "dd", "bbb", "aa"]),
    ],
)
@pytest.mark.parametrize("page", [1, 16])
def test_policy__takes_whole_leaves_in_its_order(words: Any, policy: str, order: list[str], page: int) -> None:
    cache = filled(words, policy, page=page)
    gone = []
    while before := cache.resident():
        cache.evict(0, 1)
        gone.append(max(before - cache.resident(), key=len))
        cache.check()
    assert gone == order


@pytest.mark.parametrize("policy", list(EVICTION))
@pytest.mark.parametrize("page", [1, 16])
def test_policy__never_takes_what_is_locked(words: Any, policy: str, page: int) -> None:
    cache = filled(words, policy, page=page)
    slot = cache.look("ddx")[1]
    cache.lock(0, slot)
    assert cache.evict(0, 1000) == 7 * page
    assert cache.resident() == {"d", "dd", "ddx"}
    assert cache.protected_tokens(0) == 3 * page and cache.evictable_tokens(0) == 0
    assert cache.evict(0, 1) == 0
    cache.unlock(0, slot)
    assert cache.evict(0, 1000) == 3 * page
    cache.check()


@pytest.mark.parametrize("policy", list(EVICTION))
def test_policy__stops_when_enough_is_free(words: Any, policy: str) -> None:
    cache = filled(words, policy)
    freed = cache.evict(0, 4)
    assert 4 <= freed <= 6, "at most a leaf more than was asked for"
    assert cache.free_tokens(0) == 10 + freed
    assert cache.evict(0, 0) == cache.evict(0, -3) == 0


@pytest.mark.parametrize("policy", ["rlt", "rlt_release", "reuse"])
def test_token_wise__frees_what_is_asked_for(words: Any, policy: str) -> None:
    assert filled(words, policy).evict(0, 4) == 4


def test_lfu__a_look_up_is_no_hit(words: Any) -> None:
    cache = words("lfu", 20, ["aa", "bb"])
    cache.put("aa")
    cache.put("bb")
    cache.put("bb")
    for _ in range(5):
        cache.look("aa")
    cache.evict(0, 1)
    assert cache.resident() == {"b", "bb"}


def test_slru__two_hits_protect_and_more_do_not_count(words: Any) -> None:
    cache = words("slru", 20, ["aa", "bb", "cc"])
    for word in ("aa", "aa", "aa", "aa", "bb", "bb", "cc"):
        cache.put(word)
    order = []
    while before := cache.resident():
        cache.evict(0, 1)
        order.append(max(before - cache.resident(), key=len))
    assert order == ["cc", "aa", "bb"]


def test_random_leaf__chooses_leaves_whatever_their_length(words: Any) -> None:
    """Leaves of 1, 2, 4 and 8 letters: each is the first to go in a quarter of 1,200 seeds (chi-square, p = .001)."""
    names = ["a", "bb", "cccc", "dddddddd"]
    counts = dict.fromkeys(names, 0)
    for seed in range(1200):
        cache = words("random_leaf", 20, names, seed=seed)
        for name in names:
            cache.put(name)
        cache.evict(0, 1)
        counts[next(name for name in names if name not in cache.resident())] += 1
    assert sum((count - 300) ** 2 / 300 for count in counts.values()) < 16.3


def test_registry__names_the_nearest_policy() -> None:
    with pytest.raises(UnknownNameError, match="did you mean 'rlt_release'"):
        EVICTION.load("rlt_relase")


def test_registry__takes_a_users_policy(words: Any, tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file of one's own, named as module:attr, plugs in without touching the engine: here, longest prefix first."""
    (tmp_path / "deepest_first.py").write_text(
        """from kvgym.jit.door import njit
from kvgym.engine.cache.heap import keyed
from kvgym.engine.state import Cache


@njit()
def rank(c: Cache, s: int) -> int:
    return -c.slots[s].d1


POLICY = keyed(rank)
"""
    )
    monkeypatch.syspath_prepend(tmp_path)
    cache = words("deepest_first:POLICY", 20, ["a", "bbbb", "cc"])
    for name in ("bbbb", "a", "cc"):
        cache.put(name)
    cache.evict(0, 1)
    assert cache.resident() == {"a", "c", "cc"}
