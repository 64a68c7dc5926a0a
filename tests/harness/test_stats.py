from __future__ import annotations

import math

import numpy as np
import pytest

from kvgym.harness.stats import METRICS, paired_ratio, spread, summarize
from kvgym.types import DONE, FAILED, RECORD, REJECTED


def records(rows):
    """Return RECORD rows from (status, worker, prompt, hit, arrival, first token, finish)."""
    out = np.zeros(len(rows), RECORD)
    for name, column in zip(
        ("status", "worker", "prompt_tokens", "hit_tokens", "arrival_s", "first_token_s", "finish_s"),
        zip(*rows, strict=True),
        strict=True,
    ):
        out[name] = column
    return out


TOTALS = {"busy_s": [3.0, 1.0], "evicted_tokens": [5, 7], "makespan_s": 10.0, "makespan_load_s": 3.0}


def test_summarize__by_hand():
    rows = [
        (DONE, 0, 100, 0, 0.0, 1.0, 2.0),
        (DONE, 0, 100, 50, 1.0, 1.5, 5.0),
        (DONE, 1, 200, 100, 2.0, 5.0, 8.0),
        (REJECTED, 1, 999, 0, 3.0, 0.0, 3.0),
        (FAILED, -1, 999, 0, 3.0, 0.0, 3.0),
    ]
    result = summarize(records(rows), TOTALS)
    assert list(result) == list(METRICS)
    assert result["p50_latency_s"] == 4.0
    assert result["mean_latency_s"] == pytest.approx(4.0)
    assert result["p50_ttft_s"] == 1.0
    assert result["hit_rate"] == 150 / 400
    assert (result["completed"], result["rejected"], result["failed"]) == (3, 1, 1)
    assert result["throughput_rps"] == 0.3
    assert result["load_imbalance"] == 1.5
    assert result["busiest_share"] == 0.5
    assert result["evicted_tokens"] == 12


def test_summarize__warmup_leaves_out_early_arrivals_but_counts_them():
    rows = [(DONE, 0, 10, 0, 5.0, 6.0, 105.0), (DONE, 0, 10, 10, 8.0, 8.5, 9.0)]
    result = summarize(records(rows), TOTALS, warmup_s=3.0)
    assert (result["mean_latency_s"], result["hit_rate"], result["completed"]) == (1.0, 1.0, 2)


def test_summarize__nothing_completed_gives_no_values():
    result = summarize(records([(REJECTED, 0, 1, 0, 0.0, 0.0, 0.0)]), TOTALS)
    assert (result["p50_latency_s"], result["hit_rate"], result["throughput_rps"]) == (None, None, 0.0)


def test_spread__mean_and_range():
    assert spread([1.0, 2.0, 6.0]) == (3.0, 1.0, 6.0)
    assert spread([1.0, None]) == (None, None, None)


def test_paired_ratio__t_interval_under_ten_seeds():
    # log ratios 0 and ln 4: mean ln 2, standard error ln 2, t(1) = 12.7062
    ratio, low, high = paired_ratio([1.0, 8.0], [1.0, 2.0])
    assert ratio == pytest.approx(2.0)
    assert low == pytest.approx(2.0 * math.exp(-12.7062 * math.log(2)))
    assert high == pytest.approx(2.0 * math.exp(12.7062 * math.log(2)))


def test_paired_ratio__bootstrap_from_ten_seeds_covers_the_truth():
    rng = np.random.default_rng(5)
    hits = 0
    for _ in range(100):
        base = np.exp(rng.normal(size=20))
        ratio, low, high = paired_ratio(list(base * 1.5 * np.exp(rng.normal(scale=0.1, size=20))), list(base))
        assert low <= ratio <= high
        hits += low <= 1.5 <= high
    assert 85 <= hits <= 99


def test_paired_ratio__pairing_removes_what_both_share():
    base = [1.0, 10.0, 100.0]
    assert paired_ratio([2.0, 20.0, 200.0], base) == pytest.approx((2.0, 2.0, 2.0))


def test_paired_ratio__one_seed_or_missing_value():
    assert paired_ratio([3.0], [2.0]) == (pytest.approx(1.5), None, None)
    assert paired_ratio([3.0, None], [2.0, 1.0]) == (None, None, None)
    assert paired_ratio([0.0], [2.0]) == (None, None, None)
