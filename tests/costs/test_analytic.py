"""The analytic cost is the paper's: one request at a time, a price per hit and per missed token."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from kvgym.backends.simulated import SimulatedBackend
from kvgym.config.cluster import ClusterConfig
from kvgym.costs import resolve_cost, step_costs
from kvgym.errors import ConfigError
from kvgym.workloads.gsp import GSP

CACHED, MISS, FIXED, OUTPUT = 0.25, 1.0, 8.0, 2.0


@pytest.mark.parametrize("eviction", ["lru", "rlt"])
def test_analytic__loads_are_sums_of_the_papers_costs(eviction: str) -> None:
    """Cost_ij = cached h + miss (n - h) + O; P_i sums it over worker i; the makespan of loads is max P_i.

    Prompts longer than any chunk, all at once: nothing is batched and nothing is cut.
    """
    cost: dict[str, Any] = {"model": "analytic", "cached_ms": CACHED, "miss_ms": MISS}
    cost |= {"fixed_ms": FIXED, "output_ms": OUTPUT}
    cluster = ClusterConfig(workers=3, capacity_tokens=60_000, cost=cost, one_at_a_time=True)
    load = GSP(12, 8, lens=(500, 3000, 20_000), rate_rps=None).generate(1)
    backend = SimulatedBackend(load, cluster, eviction, seed=1)
    while (decision := backend.run_to_decision()) is not None:
        backend.apply(decision.request % 3)
    records, stats = backend.records(), backend.stats()
    hit, prompt = records["hit_tokens"], records["prompt_tokens"]
    assert hit.sum() > 0 and min(stats["evicted_tokens"]) > 0
    cost_s = (CACHED * hit + MISS * (prompt - hit) + FIXED + OUTPUT * (records["output_tokens"] - 1)) / 1000
    loads = [cost_s[records["worker"] == w].sum() for w in range(3)]
    np.testing.assert_allclose(stats["busy_s"], loads, rtol=1e-9)
    assert stats["makespan_load_s"] == pytest.approx(max(loads))
    assert stats["makespan_s"] == pytest.approx(max(loads))  # all at once and never idle
    for w in range(3):  # one at a time: the next one is admitted when the one before has finished
        mine = records[records["worker"] == w]
        np.testing.assert_allclose(mine["admitted_s"][1:], mine["finish_s"][:-1])
        np.testing.assert_allclose(mine["finish_s"] - mine["admitted_s"], cost_s[records["worker"] == w], rtol=1e-6)


def test_analytic__refuses_hits_dearer_than_misses() -> None:
    with pytest.raises(ConfigError, match=r"cached_ms must not exceed miss_ms, got 2\.0 > 1\.0"):
        resolve_cost({"model": "analytic", "cached_ms": 2.0, "miss_ms": 1.0})


def test_analytic__hits_may_be_worth_nothing() -> None:
    costs = resolve_cost({"model": "analytic", "cached_ms": 1.0, "miss_ms": 1.0}).steps()
    assert (costs.p_tok_s, costs.p_kv_s) == (0.0, 0.001)


def test_analytic__needs_a_fleet_that_serves_one_at_a_time() -> None:
    with pytest.raises(ConfigError, match=r"cost model Analytic .* set one_at_a_time: true in the cluster"):
        step_costs(ClusterConfig(cost={"model": "analytic"}))
