"""The bound on hits: by hand, above every policy under load, and refused where it would be wrong."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvgym.backends.simulated import SimulatedBackend
from kvgym.config.cluster import ClusterConfig
from kvgym.errors import SimulationError
from kvgym.harness.measure.bounds import hit_bound
from kvgym.types import FAILED
from kvgym.workloads.base import Workload
from kvgym.workloads.fixed import Fixed

COST = {"p0_ms": 1.0, "p_tok_ms": 0.5, "d0_ms": 1.0}


def served(workload: Workload, policy: str, capacity: int, workers: int = 1, **cluster: Any) -> np.ndarray:
    fleet = ClusterConfig(
        workers=workers, capacity_tokens=capacity, cost=COST, page_size=workload.page_size, ignore_eos=False, **cluster
    )
    backend = SimulatedBackend(workload, fleet, policy, seed=1)
    backend.engine.run_rule(0)
    return backend.records()


@pytest.mark.parametrize(("capacity", "hits"), [(160, 12), (91, 8)])
def test_hit_bound__by_hand(capacity: int, hits: int) -> None:
    """Prefixes of 30 tokens 0 1 2 3 0 1 2 3 ..., each with a question of its own: room for two beside the one in use.

    Belady's rule on three places misses 0 1 2 3, then 2, 1, 0 and 3 once each.
    """
    rows = tuple({"path": [[i % 4, 30], [f"question {i}", 1]]} for i in range(16))
    workload = Fixed(rows, clients=1).generate(0)
    assert hit_bound(workload, served(workload, "lru", capacity), [capacity]) == 30 * hits


ROW = st.tuples(
    st.lists(st.integers(0, 2), min_size=1, max_size=4), st.integers(1, 12), st.sampled_from((0.0, 0.01, 0.05))
)


@settings(max_examples=60, deadline=None)
@given(st.lists(ROW, min_size=3, max_size=20), st.integers(48, 120), st.sampled_from((1, 4)), st.integers(1, 2))
def test_hit_bound__no_policy_exceeds_it(drawn: list[Any], capacity: int, page: int, workers: int) -> None:
    """Batches, shared prefixes in flight, retractions, two workers."""
    rows, arrival_s = [], 0.0
    for word, output, gap_s in drawn:
        path = [[s, 1 + (3 * s + 2 * d) % 7] for d, s in enumerate(word)]
        rows.append({"path": path, "output_tokens": output, "arrival_s": arrival_s})
        arrival_s += gap_s
    workload = Fixed(tuple(rows)).generate(0, page)
    for policy in ("lru", "mru", "rlt", "reuse"):
        done = served(workload, policy, capacity, workers)
        assert done["hit_tokens"].sum() <= hit_bound(workload, done, [capacity] * workers)


def test_hit_bound__refused_where_the_records_do_not_tell() -> None:
    workload = Fixed(({"path": [["a", 5]]}, {"path": [["a", 5]], "arrival_s": 1.0})).generate(0)
    done = served(workload, "lru", 100)
    for field, value, message in (
        ("attempts", 2, "no worker failed"),
        ("status", FAILED, "no worker failed"),
        ("admitted_s", 9.0, "take time"),
    ):
        changed = done.copy()
        changed[field][0] = value
        with pytest.raises(SimulationError, match=message):
            hit_bound(workload, changed, [100])
