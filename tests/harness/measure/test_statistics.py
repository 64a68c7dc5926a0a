from __future__ import annotations

import math

import numpy as np
import pytest

from kvgym.config.slo import SLO
from kvgym.harness.measure.statistics import METRICS, paired_difference, paired_ratio, spread, summarize
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


TOTALS = {
    "busy_s": [3.0, 1.0],
    "evicted_tokens": [5, 7],
    "makespan_s": 10.0,
    "makespan_load_s": 3.0,
    "capped": 0,
    "capped_tokens": 0,
}


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


def tokens(rows, output_tokens):
    out = records(rows)
    out["output_tokens"] = output_tokens
    return out


def test_tpot__of_answers_with_at_least_two_tokens():
    """Four tokens in 3 s after the first, two in 0.5 s; one token has none."""
    rows = [(DONE, 0, 1, 0, 0.0, 1.0, 4.0), (DONE, 0, 1, 0, 0.0, 1.0, 1.5), (DONE, 0, 1, 0, 0.0, 1.0, 1.0)]
    result = summarize(tokens(rows, [4, 2, 1]), TOTALS)
    assert (result["p50_tpot_s"], result["mean_tpot_s"]) == (0.75, 0.75)
    assert result["p99_tpot_s"] == pytest.approx(0.995)
    assert summarize(tokens(rows, 1), TOTALS)["p50_tpot_s"] is None


def test_goodput__share_of_what_ended_after_the_warmup_and_rate_of_the_whole_run():
    rows = [
        (DONE, 0, 10, 4, 0.0, 1.0, 1.5),
        (DONE, 0, 10, 0, 4.0, 5.0, 5.5),
        (DONE, 0, 10, 0, 5.0, 9.0, 9.5),
        (FAILED, 0, 10, 3, 5.0, 0.0, 6.0),
        (REJECTED, 0, 10, 0, 6.0, 0.0, 6.0),
    ]
    slo = SLO(ttft_s=1.0, latency_s=1.5)
    result = summarize(records(rows), TOTALS, warmup_s=2.0, slo=slo)
    assert (result["goodput_share"], result["goodput_rps"]) == (0.25, 0.2)
    assert summarize(records(rows), TOTALS, slo=slo)["goodput_share"] == 0.4
    assert result["hit_tokens"] == 4  # of the whole run, answered requests
    none = summarize(records(rows), TOTALS)
    assert (none["goodput_share"], none["goodput_rps"]) == (None, None)


def test_retries__count_what_was_sent_again():
    out = records(
        [(DONE, 0, 9, 0, 0.0, 1.0, 2.0), (FAILED, 1, 9, 0, 0.0, 0.0, 2.0), (REJECTED, -1, 9, 0, 0.0, 0.0, 2.0)]
    )
    out["attempts"] = [3, 2, 0]
    assert summarize(out, TOTALS)["retries"] == 3.0


def test_prediction__median_error_and_bias_of_single_attempts_after_the_warmup():
    out = records([(DONE, 0, 1, 0, arrival_s, arrival_s + 1.0, arrival_s + 2.0) for arrival_s in range(6)])
    out["predicted_s"] = [90.0, 1.0, 3.0, 4.0, -1.0, 50.0]
    out["attempts"] = [1, 1, 1, 1, 1, 2]
    result = summarize(out, TOTALS, warmup_s=1.0)
    assert result["prediction_error"] == 0.5  # of 0.5, 0.5 and 1
    assert result["prediction_bias"] == pytest.approx((1 + 3 + 4) / 6 - 1)
    out["predicted_s"] = -1.0
    assert summarize(out, TOTALS)["prediction_error"] is None


def test_summarize__share_of_the_possible():
    rows = [(DONE, 0, 100, 30, 0.0, 1.0, 2.0), (DONE, 0, 100, 0, 1.0, 1.5, 5.0)]
    result = summarize(records(rows), {**TOTALS, "hit_bound_tokens": 120})
    assert (result["hit_rate"], result["hit_bound"], result["possible_share"]) == (0.15, 0.6, 0.25)
    assert summarize(records(rows), {**TOTALS, "hit_bound_tokens": 0})["possible_share"] is None


def test_paired_difference__by_hand():
    assert paired_difference([0.5, None], [0.2, 0.1]) == (None, None, None)
    assert paired_difference([0.75], [0.5]) == (0.25, None, None)
    mean, low, high = paired_difference([3.0, 5.0, 4.0], [1.0, 1.0, 1.0])
    half = 4.3027 * 1.0 / math.sqrt(3)
    assert (mean, low, high) == (3.0, pytest.approx(3 - half), pytest.approx(3 + half))
    many = paired_difference([1.0, 2.0] * 6, [0.0] * 12)
    assert many[0] == 1.5 and 1.0 < many[1] < 1.5 < many[2] < 2.0


def test_warmup__holds_for_everything_that_is_measured_per_request():
    """The first ten seconds are of another kind; only totals see them."""
    rng = np.random.default_rng(0)
    rows = [(DONE, 0, 100, 100, 0.05 * i, 0.05 * i + 9, 0.05 * i + 90) for i in range(200)]
    for start_s in np.sort(rng.uniform(10, 200, 800)):
        rows.append((DONE, 1, 100, 20, start_s, start_s + 1, start_s + 3))
    out = tokens(rows, 5)
    out["tenant"], out["admitted_s"] = np.arange(1000) % 2, out["arrival_s"] + 0.5
    out["predicted_s"] = np.where(out["arrival_s"] < 10, 1.0, 3.0)
    slo = SLO(ttft_s=5.0)
    totals = {**TOTALS, "hit_bound_tokens": 50_000, "makespan_s": 10_000.0}
    late, warm = summarize(out[200:], totals, 0.0, slo), summarize(out, totals, float(out["arrival_s"][200]), slo)
    whole = {"completed", "throughput_rps", "hit_tokens", "hit_bound", "possible_share", "busiest_share"}
    differ = {name for name in METRICS if warm[name] != pytest.approx(late[name], rel=0.1)}
    # what the warm-up left in the system is backlog all the same, and shrinks
    assert differ == whole | {"backlog_growth"}
    assert (warm["saturated"], warm["mean_latency_s"], warm["hit_rate"]) == (0.0, pytest.approx(3.0), 0.2)


@pytest.mark.parametrize("makespan", ["makespan_s", "makespan_load_s"])
def test_both_makespans__are_in_the_summary(makespan):
    assert summarize(records([(DONE, 0, 1, 0, 0.0, 1.0, 2.0)]), TOTALS)[makespan] == TOTALS[makespan]


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


def test_summarize__counts_from_the_first_arrival():
    """A trace whose clock begins elsewhere has the same makespan and rates."""
    out = tokens([(DONE, 0, 100, 20, float(i), i + 1.0, i + 2.0) for i in range(40)], 5)
    at_s = {name: out[name].copy() for name in ("arrival_s", "admitted_s", "first_token_s", "finish_s")}
    results = []
    for begin_s in (0.0, 1770.0, 2.0**30):
        for name, values in at_s.items():
            out[name] = values + begin_s
        totals = {**TOTALS, "makespan_s": float(out["finish_s"].max())}
        results.append(summarize(out, totals, slo=SLO(latency_s=1e6)))
    for name in ("makespan_s", "throughput_rps", "goodput_rps"):
        assert results[0][name] > 0 and results[0][name] == results[1][name] == results[2][name]


def test_summarize__what_older_runs_do_not_say_is_none():
    older = {name: value for name, value in TOTALS.items() if not name.startswith("capped")}
    result = summarize(np.zeros(0, RECORD), older)
    assert (result["capped"], result["capped_tokens"]) == (None, None)
