"""RLT against a model that keeps sets of tokens, and its draws against chance."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

WORD = st.text("abc", min_size=1, max_size=7)
KINDS = ("serve", "serve", "serve", "look", "put", "lock", "unlock", "evict")
STEP = st.tuples(st.sampled_from(KINDS), st.integers(0, 5), st.integers(0, 7))


class Model:
    """The paper's rule on sets of prefixes: a token is the prefix that it ends.

    Marked tokens are cached, so B + 1 of them means that a token comes into a full cache where every leaf is marked.
    """

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.marked: set[str] = set()
        self.phases = 0

    def access(self, word: str) -> None:
        """Mark the tokens of a word."""
        self.marked |= {word[:end] for end in range(1, len(word) + 1)}
        assert len(self.marked) <= self.limit

    def free_to_go(self, resident: set[str], locked: set[str]) -> set[str]:
        """Tokens that can be evicted leaf by leaf before the phase has to end."""
        stay = (resident & self.marked) | locked
        return {token for token in resident if not any(other.startswith(token) for other in stay)}

    def evict(self, before: set[str], after: set[str], locked: set[str], pages: int) -> None:
        """Check an eviction that has taken place; end the phase if it had to."""
        gone, easy = before - after, self.free_to_go(before, locked)
        everything = {token for token in before if not any(other.startswith(token) for other in locked)}
        assert len(gone) == min(pages, len(everything))
        if pages <= len(easy) or easy == everything:
            assert gone <= easy
        else:
            assert easy <= gone <= everything
            self.marked = set()
            self.phases += 1


def leaves(resident: set[str]) -> set[str]:
    return {token for token in resident if not any(other != token and other.startswith(token) for other in resident)}


@pytest.mark.parametrize("page", [1, 16])
def test_rlt__follows_the_papers_rule(words: Any, page: int) -> None:
    @settings(max_examples=150, deadline=None, database=None, derandomize=True, suppress_health_check=list(HealthCheck))
    @given(st.lists(WORD, min_size=1, max_size=6), st.integers(7, 20), st.lists(STEP, max_size=60))
    def follow(vocabulary: list[str], capacity: int, steps: list[tuple[str, int, int]]) -> None:
        cache, model = words("rlt", capacity, vocabulary, page), Model(capacity)
        held: list[tuple[int, str]] = []

        def evict(pages: int) -> None:
            before = cache.resident()
            locked = {word[:end] for _, word in held for end in range(1, len(word) + 1)}
            cache.evict(0, pages * page)
            if pages > 0:
                model.evict(before, cache.resident(), locked, pages)

        for kind, which, pages in steps:
            word = vocabulary[which % len(vocabulary)]
            if kind in ("look", "lock"):
                found, slot = cache.look(word, min(pages, len(word)))
                model.access(word[:found])
                if kind == "lock":
                    cache.lock(0, slot)
                    held.append((slot, word[:found]))
            elif kind == "unlock" and held:
                cache.unlock(0, held.pop(which % len(held))[0])
            elif kind == "evict":
                evict(pages)
            elif kind in ("serve", "put"):
                end = len(word) if kind == "serve" else min(pages, len(word))
                found, slot = cache.look(word, end)
                model.access(word[:found])
                cache.lock(0, slot)
                held.append((slot, word[:found]))
                evict(end - found - cache.free_tokens(0) // page)
                if end - found <= cache.free_tokens(0) // page:
                    cache.put(word, end)
                    model.access(word[:end])
                cache.unlock(0, held.pop()[0])
            cache.check()
            resident = cache.resident()
            locked = {word[:end] for _, word in held for end in range(1, len(word) + 1)}
            assert cache.marked() == model.marked
            assert cache.cache.workers["marked"][0] == len(model.marked) * page
            assert cache.cache.workers["epoch"][0] == model.phases
            assert cache.candidates() == leaves(resident) - locked - model.marked

    follow()


def test_rlt__a_phase_by_hand(words: Any) -> None:
    cache = words("rlt", 7, ["xxxxxx", "abc", "abd", "yyyy"])
    cache.put("xxxxxx")
    assert cache.candidates() == set()
    cache.serve("abc")  # two are short and all is marked: the phase ends, and what comes in is marked in the next one
    assert cache.marked() == {"a", "ab", "abc"} and cache.candidates() == {"xxxx"}
    cache.serve("abd")  # the x that goes was the only candidate
    assert cache.marked() == {"a", "ab", "abc", "abd"} and cache.candidates() == {"xxx"}
    cache.serve("yyyy")  # three x go, then the phase ends for one more: c or d
    assert cache.marked() == {"y", "yy", "yyy", "yyyy"}
    assert cache.candidates() in ({"abc"}, {"abd"})


def drops(words: Any, leaf_pages: int, calls: list[int], seed: int, policy: str = "rlt") -> np.ndarray:
    """Pages that go from each of seven equal leaves in some calls of evict; shape (calls, 7)."""
    names = [letter * leaf_pages for letter in "abcdefg"]
    cache = words(policy, 7 * leaf_pages + 1, names, seed=seed)
    for name in names:
        cache.put(name)
    cache.new_phase()
    lengths = [[leaf_pages] * 7]
    for tokens in calls:
        cache.evict(0, tokens)
        lengths.append([cache.peek(0, cache.nodes[name], leaf_pages) for name in names])
    return -np.diff(lengths, axis=0)


def test_rlt__one_call_takes_from_each_leaf_alike(words: Any) -> None:
    taken = np.concatenate([drops(words, 500, [700], seed) for seed in range(20)])
    assert (taken.sum(axis=1) == 700).all()
    expected = taken.sum() / 7
    assert ((taken.sum(axis=0) - expected) ** 2 / expected).sum() < 22.5  # chi-square with 6 degrees: p = .001
    spread = ((taken - 100) ** 2 / 100).sum(axis=1)
    assert 3 < spread.mean() < 9.5  # a multinomial's, not a fixed share


def test_rlt__draws_are_independent(words: Any) -> None:
    """The leaf that a draw takes says nothing about the next: 49 equally likely pairs, p = .001 at 84."""
    picks = np.concatenate([drops(words, 500, [1] * 1000, seed).argmax(axis=1) for seed in range(3)])
    pairs = np.bincount(picks[:-1] * 7 + picks[1:], minlength=49)
    expected = pairs.sum() / 49
    assert ((pairs - expected) ** 2 / expected).sum() < 84
    again = drops(words, 500, [1] * 1000, 0).argmax(axis=1)
    assert (again == picks[:1000]).all()  # the same seed draws the same


def star(words: Any, policy: str, leaves: int, queries: int, order: str) -> float:
    """Misses per query of the lower-bound instance: a stem, and one leaf more than the cache can hold beside it."""
    names = ["stem" + chr(0x100 + i) for i in range(leaves)]
    cache = words(policy, 4 + leaves - 1, names)
    rng = np.random.default_rng(1)
    misses = 0
    for j in range(queries):
        misses += cache.serve(names[j % leaves if order == "cyclic" else rng.integers(leaves)])
    return (misses - 4) / queries


def test_star__lru_misses_every_query_and_rlt_a_logarithm_of_them(words: Any) -> None:
    """One miss a query for LRU; about ln(n) / n for RLT, against 1 / n of the offline optimum (n leaves fit)."""
    for leaves in (8, 32, 128):
        queries = 40 * leaves
        assert star(words, "lru", leaves, queries, "cyclic") == 1.0
        per_cycle = leaves * star(words, "rlt", leaves, queries, "cyclic")
        assert 1.0 <= per_cycle <= 2 * (1 + math.log(leaves))
    assert star(words, "rlt", 128, 40 * 128, "cyclic") < 0.2
