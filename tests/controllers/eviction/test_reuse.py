"""What `reuse` learns, and that its memory goes where the worker goes."""

from __future__ import annotations

import pickle
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from controllers.eviction import reuse
from kvgym.engine.engine import Engine, default_options
from kvgym.engine.state import EVICT, FINISHED
from kvgym.workloads.gsp import GSP


def hit_rate(policy: str, seed: int = 1, **gsp: Any) -> float:
    load = GSP(lens=(64, 128, 256, 512, 1024), rate_rps=None, clients=1, **gsp).generate(seed)
    engine = played(load, policy, seed)
    while engine.run() != FINISHED:
        engine.route(0)
    records = engine.records()
    return float(records["hit_tokens"].sum() / records["prompt_tokens"].sum())


def played(load: Any, policy: str, seed: int = 1, **changes: int) -> Engine:
    options = default_options()
    for name, value in {"p0": 0.01, "d0": 0.01, "chunk": 1 << 20, **changes}.items():
        options[name] = value
    return Engine(load, options, np.array([24_500]), np.ones(1), policy, seed)


@pytest.mark.parametrize("order", ["worst", "random"])
def test_reuse__beats_rlt_and_lru_where_questions_come_once(order: str) -> None:
    """A pool of half the cycle: prefixes fit once the questions are known to be useless."""
    rates = {policy: hit_rate(policy, groups=128, order=order) for policy in ("lru", "rlt", "reuse")}
    assert rates["reuse"] > max(rates["lru"], rates["rlt"]) + 0.1


def test_reuse__holds_its_own_when_popularity_shifts() -> None:
    rates = {p: hit_rate(p, groups=128, zipf=1.0, shift_every=256) for p in ("lru", "rlt", "reuse")}
    assert rates["reuse"] > max(rates["lru"], rates["rlt"])


def test_bucket__ages_are_in_order_and_buckets_meet() -> None:
    with np.errstate(over="ignore"):
        places = [int(reuse.bucket(age)) for age in range(5000)]
        assert places[:9] == [0, 1, 2, 3, 4, 5, 6, 7, 8]
        assert all(0 <= b - a <= 1 for a, b in pairwise(places))
        assert reuse.bucket(2**40) == reuse.BUCKETS - 1
    spans = np.bincount(places)
    assert all(spans[b] == reuse.ticks(b) for b in range(len(spans) - 1))


def test_reuse__counts_a_request_once_and_fades(words: Any) -> None:
    """A look-up is no reuse; an insert by another request is, at the age in ticks since the last."""
    cache = words("reuse", 20, ["abc", "xy"])
    cache.put("abc")
    cache.look("abc")
    memory = cache.cache.memory[0]
    reused = slice(reuse.REUSED, reuse.EVICTED)
    assert memory[reused].sum() == 0
    cache.put("abc")
    assert memory[reused].sum() == 3
    cache.insert(0, cache.nodes["abc"], 3, 0, 3)  # the same request at its finish
    assert memory[reused].sum() == 3
    cache.put("xy")
    cache.evict(0, 5)
    assert memory[reused].sum() == pytest.approx(3 * reuse.FADE)
    assert memory[reuse.EVICTED : reuse.INDEX].sum() == 5


def test_reuse__whole_pages_only(words: Any) -> None:
    cache = words("reuse", 20, ["abcde", "xy"], 16)
    cache.put("abcde")
    assert cache.evict(0, 1) == 16
    assert cache.evict(0, 33) == 48
    cache.check()
    assert cache.resident() == {"a"}


def test_reuse__its_memory_forks_and_pickles() -> None:
    """From one point in mid-episode the original, a fork and a pickled copy go on alike, with memory of their own."""
    load = GSP(groups=40, prompts_per_group=8, lens=(256, 512), rate_rps=None, clients=1).generate(3)
    engine = played(load, "reuse", pause_evict=1)
    for _ in range(60):
        if engine.run() == EVICT:
            engine.serve_eviction()
        else:
            engine.route(0)
    assert engine.cache.memory.any()
    twins = [engine, engine.fork(), pickle.loads(pickle.dumps(engine))]
    ends = []
    for twin in twins:
        while (code := twin.run()) != FINISHED:
            twin.serve_eviction() if code == EVICT else twin.route(0)
        ends.append((twin.records().tobytes(), twin.cache.memory.tobytes()))
    assert ends[0] == ends[1] == ends[2]
