"""Each priority class and tenant has its tails; fairness says how evenly tenants are served."""

from __future__ import annotations

import numpy as np

from kvgym.config.slo import SLO
from kvgym.types import DONE

CLASS_METRICS: dict[str, str] = {
    "requests": "requests that ended",
    "completed": "requests answered",
    "p50_latency_s": "median end-to-end latency",
    "p95_latency_s": "95th percentile of the latency",
    "p50_ttft_s": "median time to first token",
    "p95_ttft_s": "95th percentile of the time to first token",
    "mean_normalized_latency_s": "mean latency per output token",
    "goodput_share": "share of the requests that kept the service level objective",
}
"""Metric of one class -> what it means; all of requests that arrive after the warm-up."""
MOST_TENANTS = 20
"""Tenants that get rows of their own, those with the lowest numbers; sources number the largest tenant 0."""

Class = tuple[str, int]
"""``("priority", number)`` or ``("tenant", number)``."""
ClassMetrics = dict[Class, dict[str, float | None]]


def class_metrics(window: np.ndarray, slo: SLO | None) -> ClassMetrics:
    """Return `CLASS_METRICS` per priority class and tenant; a kind of class that has only one member is left out.

    Args:
        window: RECORD rows of the requests that count.
        slo: what goodput is measured against.

    Returns:
        class -> metric -> value; None where no request gives one.
    """
    result: ClassMetrics = {}
    for kind in ("priority", "tenant"):
        numbers = np.unique(window[kind])
        if len(numbers) > 1:
            shown = numbers[:MOST_TENANTS] if kind == "tenant" else numbers
            result |= {(kind, int(number)): _metrics(window[window[kind] == number], slo) for number in shown}
    return result


def _metrics(rows: np.ndarray, slo: SLO | None) -> dict[str, float | None]:
    result: dict[str, float | None] = dict.fromkeys(CLASS_METRICS)
    done = rows[rows["status"] == DONE]
    result["requests"], result["completed"] = float(len(rows)), float(len(done))
    if len(done):
        for name, end in (("latency_s", "finish_s"), ("ttft_s", "first_token_s")):
            points = np.percentile(done[end] - done["arrival_s"], (50, 95))
            result[f"p50_{name}"], result[f"p95_{name}"] = map(float, points)
        result["mean_normalized_latency_s"] = float(normalized_latency_s(done).mean())
    result["goodput_share"] = float(slo.met(rows).mean()) if slo else None
    return result


def normalized_latency_s(done: np.ndarray) -> np.ndarray:
    """Return latency / output tokens of answered requests, seconds per token, float64 (rows,)."""
    return (done["finish_s"] - done["arrival_s"]) / np.maximum(done["output_tokens"], 1)


def jain(values: np.ndarray) -> float:
    """Return Jain's fairness index (sum x)^2 / (n * sum x^2): 1 where all are equal, 1/n where one has everything.

    Source: R. Jain, D. Chiu, W. Hawe, "A quantitative measure of fairness and discrimination for resource allocation in
    shared computer systems", DEC-TR-301, 1984.

    Args:
        values: positive numbers, shape (n,) with n >= 1.
    """
    return float(values.sum() ** 2 / (len(values) * (values * values).sum()))


def fairness(done: np.ndarray) -> float | None:
    """Return Jain's index of the tenants' mean normalized latencies; None with fewer than two tenants.

    x_i is the mean over tenant i's answered requests of latency / output tokens, so J = 1 / (1 + CV^2) with CV the
    coefficient of variation over tenants: 1 if all wait as long for a token, 0.9 at a CV of 33 %. Everything that slows
    a tenant down counts: queues, full batches, prefixes that are not cached, and longer prompts of its own too.
    """
    tenants, member = np.unique(done["tenant"], return_inverse=True)
    if len(tenants) < 2:
        return None
    return jain(np.bincount(member, normalized_latency_s(done)) / np.bincount(member))
