"""Eight replicas of Qwen3-32B behind a service and behind llm-d's router, on a ladder of rates: two published runs."""

from __future__ import annotations

import csv
import functools
import gzip
from typing import Any

import numpy as np

from kvgym.config.cluster import resolve_cluster
from kvgym.config.loader import resolve_workload
from kvgym.config.signals import SignalsConfig
from kvgym.logs.rows import locate
from kvgym.validation.base import Figure, MeasuredRun, serve

FILE = "measured/llmd_guides_qwen3_32b_h100.csv.gz"
ARMS = {"k8s-service": "random", "router": "affinity_load"}
"""Arm -> routing controller: the service picks at random per connection."""
NAMES = {("ttft", "p90"): "TTFT P90, s", ("output_tok_s", "mean"): "output, tokens/s"}


def published(run: str) -> dict[tuple[str, float, str], float]:
    """Return (arm, requests/s, figure) -> value of a published run."""
    with gzip.open(locate(FILE), "rt") as file:
        rows = [row for row in csv.DictReader(file) if row["run"] == run]
    return {
        (row["arm"], float(row["load"]), NAMES[row["metric"], row["stat"]]): float(row["value"])
        for row in rows
        if (row["metric"], row["stat"]) in NAMES and row["load"].replace(".", "").isdigit()
    }


def replay(run: str, cluster: str, observability: str) -> list[Figure]:
    """Return TTFT P90 and throughput of both arms at every load but the warm-up."""
    ladder: Any = resolve_workload("ladder_qwen3")
    fleet, values = resolve_cluster(cluster), published(run)
    load, figures = ladder.generate(0, fleet.page_size), []
    for arm, routing in ARMS.items():
        done = serve(load, fleet, routing, SignalsConfig(observability))
        stage = ladder.stage_of(done["arrival_s"])
        for k, (rate, _) in enumerate(ladder.stages):
            own = done[stage == k]
            ttft_s = float(np.percentile(own["first_token_s"] - own["arrival_s"], 90))
            seconds = own["finish_s"].max() - k * ladder.gap_s
            found = {"TTFT P90, s": ttft_s, "output, tokens/s": float(own["output_tokens"].sum() / seconds)}
            for name, value in found.items():
                if k > 0 and (arm, rate, name) in values:
                    figures.append(Figure(arm, rate, name, values[arm, rate, name], value))
    return figures


_ASSUMED = (
    "Step times are fits of measured kernel tables for Qwen3-32B on two H100; nothing is added to a step.",
    "Prompts have 7,200 tokens and answers 1,000, as the load's configuration says.",
    "The service is random per connection; the router's in-flight tokens drain at 15,926 tokens/s, where the real one "
    "releases them with the first token.",
)

G15 = MeasuredRun(
    title="llm-d guide, run G15: 8 x Qwen3-32B on two H100, SGLang 0.5.13, 3 to 60 requests/s",
    source=f"llm-d (Apache-2.0), {FILE}",
    assumed=(*_ASSUMED, "SGLang 0.5.13 was not read; it is taken to reserve as 0.4.6 does."),
    replay=functools.partial(replay, "G15", "h100x16_qwen3_32b_sglang", "router"),
)
G16 = MeasuredRun(
    title="llm-d guide, run G16: 8 x Qwen3-32B on two H100, vLLM 0.23, 3 to 60 requests/s",
    source=f"llm-d (Apache-2.0), {FILE}",
    assumed=(*_ASSUMED, "vLLM 0.23 is taken for 0.33, with asynchronous scheduling off, 8,192 tokens a step."),
    replay=functools.partial(replay, "G16", "h100x16_qwen3_32b_vllm", "events"),
)
