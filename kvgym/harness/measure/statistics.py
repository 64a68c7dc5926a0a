"""Request records become numbers of a run, and paired ratios over seeds with 95 % intervals."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from kvgym.config.slo import SLO
from kvgym.errors import ConfigError
from kvgym.harness.measure.classes import fairness
from kvgym.harness.measure.saturation import backlog_growth
from kvgym.types import DONE, FAILED, REJECTED

METRICS: dict[str, str] = {
    "p50_latency_s": "median end-to-end latency",
    "p90_latency_s": "90th percentile of the latency",
    "p95_latency_s": "95th percentile of the latency",
    "p99_latency_s": "99th percentile of the latency",
    "mean_latency_s": "mean latency",
    "p50_ttft_s": "median time to first token",
    "p90_ttft_s": "90th percentile of the time to first token",
    "p95_ttft_s": "95th percentile of the time to first token",
    "p99_ttft_s": "99th percentile of the time to first token",
    "mean_ttft_s": "mean time to first token",
    "p50_tpot_s": "median time per output token, of answers with at least two",
    "p90_tpot_s": "90th percentile of the time per output token",
    "p95_tpot_s": "95th percentile of the time per output token",
    "p99_tpot_s": "99th percentile of the time per output token",
    "mean_tpot_s": "mean over requests of the time per output token",
    "hit_rate": "prompt tokens found in the cache / prompt tokens, over completed requests",
    "hit_bound": "hit rate that no eviction policy could have exceeded (measure/bounds.py); none unless asked for",
    "possible_share": "hit tokens / those of that bound",
    "makespan_s": "from the first arrival to the last completion",
    "makespan_load_s": "largest accumulated busy time of a worker",
    "throughput_rps": "completed requests per second of makespan",
    "goodput_share": "share of the requests that ended which kept the service level objective; none without one",
    "goodput_rps": "requests that kept the service level objective per second of makespan",
    "fairness": "Jain's index of the tenants' mean normalized latencies (kvgym.harness.measure.classes), 1: all alike",
    "load_imbalance": "busy time of the busiest worker / mean busy time",
    "busiest_share": "share of the finished requests that the most chosen worker got",
    "hit_tokens": "prompt tokens of completed requests that were found in the cache",
    "evicted_tokens": "tokens evicted on all workers",
    "retractions": "times that a running request was pushed back to the queue",
    "retries": "times that a request lost with a failed worker was sent again",
    "prediction_error": "median of |predicted - real latency| / real latency; none: the controller predicts nothing",
    "prediction_bias": "mean predicted latency / mean real latency - 1; above 0: too pessimistic",
    "backlog_growth": "share of the arrivals that became backlog (measure/saturation.py); about 0: it kept up",
    "saturated": "1: the backlog grew significantly, so latencies depend on the length of the run; 0: it did not",
    "completed": "requests answered",
    "capped": "answers cut at the KV capacity; none: not known, as of real servers and of older runs",
    "capped_tokens": "tokens that those answers lack",
    "rejected": "requests that could never fit",
    "failed": "requests lost to a failed worker",
}
"""Metric -> what it means, in the order of the summary files. Formulas of latency, TTFT, TPOT: `kvgym.types`.

Of requests that arrive after the warm-up: latency, TTFT, TPOT, hit_rate, goodput_share, fairness, prediction_*,
backlog_growth, saturated. Of the whole run: all other rates, times and counts.
"""

RATIO_METRICS = (
    "p50_latency_s",
    "p95_latency_s",
    "p50_ttft_s",
    "hit_rate",
    "makespan_s",
    "makespan_load_s",
    "throughput_rps",
)
"""Metrics that get a paired ratio against the baseline."""

# 97.5 % quantiles of Student's t for 1 to 8 degrees of freedom; from 10 seeds on the bootstrap is used instead.
_T_975 = (12.7062, 4.3027, 3.1824, 2.7764, 2.5706, 2.4469, 2.3646, 2.3060)
_BOOTSTRAP_SEEDS = 10
_RESAMPLES = 10_000


def summarize(
    records: np.ndarray, totals: Mapping[str, Any], warmup_s: float = 0.0, slo: SLO | None = None
) -> dict[str, float | None]:
    """Return every metric of `METRICS` for one run.

    Args:
        records: RECORD rows of all finished requests, any order.
        totals: the backend's `stats()`: per-worker lists ``busy_s`` and ``evicted_tokens``, ``makespan_s`` and
            ``makespan_load_s``; ``hit_bound_tokens`` where bounds were asked for; ``capped`` and ``capped_tokens`` of a
            simulated fleet.
        warmup_s: requests that arrive earlier than this after the first arrival are left out of all that is measured
            per request (see `METRICS`).
        slo: what goodput is measured against.

    Returns:
        metric -> value; None where no request gives one (nothing completed).
    """
    done = records[records["status"] == DONE]
    result: dict[str, float | None] = {}
    ended = measured(records, warmup_s)
    window = ended[ended["status"] == DONE]
    result |= _distribution("latency_s", window["finish_s"] - window["arrival_s"])
    result |= _distribution("ttft_s", window["first_token_s"] - window["arrival_s"])
    several = window[window["output_tokens"] >= 2]
    result |= _distribution("tpot_s", (several["finish_s"] - several["first_token_s"]) / (several["output_tokens"] - 1))
    result["hit_rate"] = _ratio(float(window["hit_tokens"].sum()), float(window["prompt_tokens"].sum()))
    hit_tokens, bound = float(done["hit_tokens"].sum()), totals.get("hit_bound_tokens")
    result["hit_bound"] = None if bound is None else _ratio(float(bound), float(done["prompt_tokens"].sum()))
    result["possible_share"] = None if bound is None else _ratio(hit_tokens, float(bound))
    busy_s = np.asarray(totals["busy_s"], np.float64)
    # A trace's clock may begin anywhere; what counts is the time in which there was something to do.
    makespan_s = max(float(totals["makespan_s"]) - _start_s(records, 0.0), 0.0)
    result["makespan_s"] = makespan_s
    result["makespan_load_s"] = float(totals["makespan_load_s"])
    result["throughput_rps"] = _ratio(float(len(done)), makespan_s)
    result["goodput_share"] = _ratio(float(slo.met(ended).sum()), float(len(ended))) if slo else None
    result["goodput_rps"] = _ratio(float(slo.met(records).sum()), makespan_s) if slo else None
    result["fairness"] = fairness(window)
    result["prediction_error"], result["prediction_bias"] = _prediction(window)
    result["backlog_growth"], result["saturated"] = backlog_growth(records, _start_s(records, warmup_s))
    result["load_imbalance"] = _ratio(float(busy_s.max()), float(busy_s.mean()))
    sent = np.bincount(records["worker"][records["worker"] >= 0], minlength=1)
    result["busiest_share"] = _ratio(float(sent.max()), float(sent.sum()))
    result["hit_tokens"] = hit_tokens
    result["evicted_tokens"] = float(np.sum(totals["evicted_tokens"]))
    result["retractions"] = float(records["retractions"].sum())
    result["retries"] = float(np.maximum(records["attempts"] - 1, 0).sum())
    result["completed"] = float(len(done))
    result["capped"], result["capped_tokens"] = _known(totals, "capped"), _known(totals, "capped_tokens")
    result["rejected"] = float((records["status"] == REJECTED).sum())
    result["failed"] = float((records["status"] == FAILED).sum())
    return {name: result[name] for name in METRICS}


def _known(totals: Mapping[str, Any], name: str) -> float | None:
    return None if totals.get(name) is None else float(totals[name])


def check_warmup(warmup_s: float) -> None:
    """Raise a `ConfigError` if `warmup_s` is negative."""
    if warmup_s < 0:
        raise ConfigError(f"warmup_s must not be negative, got {warmup_s}")


def measured(records: np.ndarray, warmup_s: float) -> np.ndarray:
    """Return the RECORD rows that arrived at least `warmup_s` after the first one."""
    return records[records["arrival_s"] >= _start_s(records, warmup_s)]


def _start_s(records: np.ndarray, warmup_s: float) -> float:
    return (float(records["arrival_s"].min()) if len(records) else 0.0) + warmup_s


def _prediction(done: np.ndarray) -> tuple[float | None, float | None]:
    """Return (median absolute relative error, bias) of the predicted latencies.

    A request that was sent more than once is left out: the last prediction starts later than its arrival.
    """
    latency_s, predicted_s = done["finish_s"] - done["arrival_s"], done["predicted_s"]
    known = np.isfinite(predicted_s) & (predicted_s >= 0) & (latency_s > 0) & (done["attempts"] <= 1)
    if not known.any():
        return None, None
    latency_s, predicted_s = latency_s[known], predicted_s[known]
    return float(np.median(np.abs(predicted_s - latency_s) / latency_s)), float(
        predicted_s.mean() / latency_s.mean() - 1
    )


def _distribution(name: str, values: np.ndarray) -> dict[str, float | None]:
    keys = [f"p{percent}_{name}" for percent in (50, 90, 95, 99)]
    if len(values) == 0:
        return dict.fromkeys([*keys, f"mean_{name}"])
    points = np.percentile(values, (50, 90, 95, 99))
    return {**dict(zip(keys, map(float, points), strict=True)), f"mean_{name}": float(values.mean())}


def _ratio(numerator: float, denominator: float) -> float | None:
    return numerator / denominator if denominator > 0 else None


def spread(values: Sequence[float | None]) -> tuple[float | None, float | None, float | None]:
    """Return (mean, minimum, maximum) over seeds; all None if any seed has no value."""
    known = [value for value in values if value is not None]
    if len(known) < len(values) or not known:
        return None, None, None
    return math.fsum(known) / len(known), min(known), max(known)


def paired_ratio(
    values: Sequence[float | None], baseline: Sequence[float | None]
) -> tuple[float | None, float | None, float | None]:
    """Return the geometric mean of ``values / baseline`` over paired seeds and its 95 % interval.

    Under 10 seeds the interval is a paired t-interval on log ratios, from 10 on a percentile bootstrap that resamples
    seeds (not requests). One seed gives no interval; a value that is missing or not positive gives no ratio, and so do
    no seeds.
    """
    if not values:
        return None, None, None
    logs = []
    for value, base in zip(values, baseline, strict=True):
        if value is None or base is None or value <= 0 or base <= 0:
            return None, None, None
        logs.append(math.log(value / base))
    centre = math.fsum(logs) / len(logs)
    if len(logs) == 1:
        return math.exp(centre), None, None
    low, high = _interval(logs, centre)
    return math.exp(centre), math.exp(low), math.exp(high)


def paired_difference(
    values: Sequence[float | None], baseline: Sequence[float | None]
) -> tuple[float | None, float | None, float | None]:
    """Return the mean of ``values - baseline`` over paired seeds and its 95 % interval (as of `paired_ratio`)."""
    gaps = [
        value - base for value, base in zip(values, baseline, strict=True) if value is not None and base is not None
    ]
    if not gaps or len(gaps) < len(values):
        return None, None, None
    centre = math.fsum(gaps) / len(gaps)
    return (centre, *_interval(gaps, centre)) if len(gaps) > 1 else (centre, None, None)


def _interval(values: list[float], centre: float) -> tuple[float, float]:
    return _bootstrap(values) if len(values) >= _BOOTSTRAP_SEEDS else t_interval(values, centre)


def t_interval(values: Sequence[float], centre: float) -> tuple[float, float]:
    """Return the 95 % t-interval around `centre`, the mean of 2 to 9 values."""
    freedom = len(values) - 1
    error = math.sqrt(math.fsum((x - centre) ** 2 for x in values) / freedom / len(values))
    half = _T_975[freedom - 1] * error
    return centre - half, centre + half


def _bootstrap(logs: list[float]) -> tuple[float, float]:
    draws = np.random.default_rng(0).integers(len(logs), size=(_RESAMPLES, len(logs)))
    low, high = np.percentile(np.asarray(logs)[draws].mean(axis=1), (2.5, 97.5))
    return float(low), float(high)
