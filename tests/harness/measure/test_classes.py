from __future__ import annotations

import numpy as np
import pytest

from kvgym.config.cluster import ClusterConfig
from kvgym.config.slo import SLO
from kvgym.harness.compare.cell import Cell
from kvgym.harness.compare.run import run
from kvgym.harness.measure.classes import (
    CLASS_METRICS,
    MOST_TENANTS,
    class_metrics,
    fairness,
    jain,
    normalized_latency_s,
)
from kvgym.types import DONE, FAILED, RECORD
from kvgym.workloads.fixed import Fixed


def records(*rows):
    """Return RECORD rows from (tenant, priority, status, arrival, first token, finish, output tokens)."""
    out = np.zeros(len(rows), RECORD)
    names = ("tenant", "priority", "status", "arrival_s", "first_token_s", "finish_s", "output_tokens")
    for record, row in zip(out, rows, strict=True):
        for name, value in zip(names, row, strict=True):
            record[name] = value
    return out


ROWS = records(
    (0, 0, DONE, 0.0, 1.0, 2.0, 2),  # 1 s per token
    (0, 1, DONE, 0.0, 3.0, 4.0, 2),  # 2
    (1, 0, DONE, 0.0, 4.5, 6.0, 2),  # 3
    (1, 1, FAILED, 1.0, -1.0, 2.0, 0),
    (1, 1, DONE, 2.0, 6.5, 7.0, 1),  # 5
)


def test_class_metrics__by_hand():
    found = class_metrics(ROWS, SLO(latency_s=4.0))
    assert list(found) == [("priority", 0), ("priority", 1), ("tenant", 0), ("tenant", 1)]
    assert all(list(row) == list(CLASS_METRICS) for row in found.values())
    tenant = found["tenant", 1]
    assert (tenant["requests"], tenant["completed"]) == (3, 2)
    assert (tenant["p50_latency_s"], tenant["p50_ttft_s"]) == (5.5, 4.5)
    assert tenant["p95_latency_s"] == pytest.approx(5.95)
    assert tenant["mean_normalized_latency_s"] == 4.0
    assert tenant["goodput_share"] == 0.0
    assert found["tenant", 0]["goodput_share"] == 1.0
    assert found["priority", 0]["p50_latency_s"] == 4.0


def test_class_metrics__one_class_is_none():
    rows = ROWS.copy()
    rows["tenant"] = 7
    assert list(class_metrics(rows, None)) == [("priority", 0), ("priority", 1)]
    assert class_metrics(rows[:0], None) == {}
    assert class_metrics(rows, None)["priority", 0]["goodput_share"] is None


def test_class_metrics__a_class_without_answers_has_no_latency():
    rows = ROWS.copy()
    rows["status"][rows["priority"] == 1] = FAILED
    row = class_metrics(rows, None)["priority", 1]
    assert (row["requests"], row["completed"], row["p95_ttft_s"], row["mean_normalized_latency_s"]) == (
        3,
        0,
        None,
        None,
    )


def test_class_metrics__shows_the_first_tenants_only():
    rows = np.zeros(100, RECORD)
    rows["tenant"] = np.arange(100)
    assert [number for _, number in class_metrics(rows, None)] == list(range(MOST_TENANTS))


def test_jain__of_the_textbook():
    assert jain(np.array([2.0, 2.0, 2.0])) == 1.0
    assert jain(np.array([1.0, 0.0, 0.0, 0.0])) == 0.25
    assert jain(np.array([1.0, 3.0])) == 0.8  # 16 / (2 * 10)


def test_fairness__is_over_the_tenants_mean_normalized_latencies():
    done = ROWS[ROWS["status"] == DONE]
    assert normalized_latency_s(done).tolist() == [1.0, 2.0, 3.0, 5.0]
    assert fairness(done) == pytest.approx((1.5 + 4.0) ** 2 / (2 * (1.5**2 + 4.0**2)))
    assert fairness(done[:2]) is None  # one tenant
    assert fairness(done[:0]) is None


def test_fairness__drops_for_a_tenant_on_a_slow_worker():
    """Two tenants send the same prompts; sent to their own workers, one of which has half the speed, they differ."""
    rows = tuple({"path": [[f"p{i}", 1000]], "arrival_s": 3.0 * i, "tenant": i % 2} for i in range(20))
    cost = {"model": "analytic", "cached_ms": 0.0, "miss_ms": 1.0}
    fleet = ClusterConfig(workers=2, capacity_tokens=50_000, cost=cost, one_at_a_time=True, speed=(1.0, 0.5))
    found = {}
    for routing in ("round_robin", "random"):
        cell = Cell("rows", Fixed(rows), "two", fleet, routing, routing, {}, "lru", {})
        found[routing] = fairness(run(cell, 0).records)
    assert found["round_robin"] == pytest.approx(3**2 / (2 * (1 + 4)), abs=0.01)  # 1 s and 2 s
    assert found["random"] > 0.95
