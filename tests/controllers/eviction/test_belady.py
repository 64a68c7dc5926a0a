"""The oracle: it reaches the bound where requests come one at a time, and nobody else gets there."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvgym.engine.engine import Engine, default_options
from kvgym.engine.state import EVICT, FINISHED
from kvgym.errors import ConfigError
from kvgym.harness.measure.bounds import hit_bound
from kvgym.workloads.fixed import Fixed
from kvgym.workloads.gsp import GSP


def engine(load: Any, policy: str, capacity: int, oracle: bool = True, **changes: int) -> Engine:
    options = default_options()
    for name, value in {"p0": 0.01, "d0": 0.01, "chunk": 1 << 20, "page": load.page_size, **changes}.items():
        options[name] = value
    return Engine(load, options, np.array([capacity]), np.ones(1), policy, 1, oracle=oracle)


def records(load: Any, policy: str, capacity: int) -> np.ndarray:
    made = engine(load, policy, capacity)
    while made.run() != FINISHED:
        made.route(0)
    return made.records()


@pytest.mark.parametrize("page", [1, 16])
def test_belady__reaches_the_bound_one_at_a_time(page: int) -> None:
    load = GSP(
        groups=64, prompts_per_group=12, order="random", lens=(64, 128, 256, 512, 1024), rate_rps=None, clients=1
    )
    workload = load.generate(1, page)
    best = records(workload, "belady", 24_500)
    bound = hit_bound(workload, best, [24_500])
    assert bound - len(best) <= best["hit_tokens"].sum() <= bound
    for policy in ("lru", "rlt", "reuse"):
        rows = records(workload, policy, 24_500)
        assert rows["hit_tokens"].sum() < best["hit_tokens"].sum()
        assert hit_bound(workload, rows, [24_500]) == bound


ROW = st.tuples(st.lists(st.integers(0, 2), min_size=1, max_size=4), st.integers(1, 3))


@settings(max_examples=40, deadline=None)
@given(st.lists(ROW, min_size=2, max_size=14), st.integers(30, 60))
def test_belady__at_most_a_token_a_request_below_the_bound(drawn: list[Any], capacity: int) -> None:
    """A hit stops one token before the end of a prompt, so where prompts repeat a token may be kept in vain."""
    rows = tuple(
        {"path": [[s, 1 + (3 * s + 2 * d) % 5] for d, s in enumerate(word)], "output_tokens": out}
        for word, out in drawn
    )
    workload = Fixed(rows, clients=1).generate(0)
    done = records(workload, "belady", capacity)
    bound = hit_bound(workload, done, [capacity])
    assert bound - len(rows) <= done["hit_tokens"].sum() <= bound
    for policy in ("lru", "mru", "random_leaf"):
        assert records(workload, policy, capacity)["hit_tokens"].sum() <= bound


def test_belady__a_rejected_request_does_not_put_it_out() -> None:
    rows = [{"path": [[i % 4, 30], [f"question {i}", 1]], "output_tokens": 1} for i in range(12)]
    rows.insert(3, {"path": [["huge", 500]], "output_tokens": 1})
    workload = Fixed(tuple(rows), clients=1).generate(0)
    done = records(workload, "belady", 100)
    assert done["hit_tokens"].sum() == hit_bound(workload, done, [100]) > 0


def test_belady__needs_leave() -> None:
    load = GSP(groups=4, rate_rps=None, clients=1).generate(1)
    with pytest.raises(ConfigError, match="sees the future"):
        engine(load, "belady", 24_500, oracle=False)


def test_belady__forks_and_pickles() -> None:
    load = GSP(groups=40, prompts_per_group=8, lens=(256, 512), rate_rps=None, clients=1).generate(3)
    first = engine(load, "belady", 8000, pause_evict=1)
    for _ in range(60):
        if first.run() == EVICT:
            first.serve_eviction()
        else:
            first.route(0)
    ends = []
    for twin in (first, first.fork(), pickle.loads(pickle.dumps(first))):
        while (code := twin.run()) != FINISHED:
            twin.serve_eviction() if code == EVICT else twin.route(0)
        ends.append((twin.records().tobytes(), twin.cache.memory.tobytes()))
    assert ends[0] == ends[1] == ends[2]
