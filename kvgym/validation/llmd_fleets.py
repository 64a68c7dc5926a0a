"""llm-d has measured routed fleets on ladders of rates: three published runs in which only the router differs."""

from __future__ import annotations

import csv
import functools
import gzip
from collections.abc import Mapping
from typing import Any

import numpy as np

from kvgym.config.cluster import resolve_cluster
from kvgym.config.loader import resolve_workload
from kvgym.config.signals import SignalsConfig
from kvgym.logs.rows import locate
from kvgym.validation.base import Figure, MeasuredRun, serve

GUIDES, RUN37 = "measured/llmd_guides_qwen3_32b_h100.csv.gz", "measured/llmd_kvcache37_70b_h100.csv.gz"
SERVICE_AND_ROUTER = {"k8s-service": "random", "router": "affinity_load"}
"""Arm -> routing controller: the service picks at random per connection."""
FOUR_ARMS = {
    "random": "random",
    "load": {"use": "llmd_precise", "options": {"prefix": 0.0}},
    "default": "llmd_default",
    "precise": "llmd_precise",
}
NAMES = {("ttft", "p90"): "TTFT P90, s", ("output_tok_s", "mean"): "output, tokens/s"}


def published(file: str, run: str) -> dict[tuple[str, float, str], float]:
    """Return (arm, requests/s, figure) -> value of a published run."""
    with gzip.open(locate(file), "rt") as rows:
        found = [row for row in csv.DictReader(rows) if row["run"] == run and (row["metric"], row["stat"]) in NAMES]
    return {
        (row["arm"], float(row["load"]), NAMES[row["metric"], row["stat"]]): float(row["value"])
        for row in found
        if row["load"].replace(".", "").isdigit()
    }


def replay(
    file: str, run: str, workload: str, cluster: str, arms: Mapping[str, Any], signals: SignalsConfig
) -> list[Figure]:
    """Return TTFT P90 and throughput of all arms at every load but the warm-up."""
    ladder: Any = resolve_workload(workload)
    fleet, values = resolve_cluster(cluster), published(file, run)
    load, figures = ladder.generate(0, fleet.page_size), []
    for arm, routing in arms.items():
        done = serve(load, fleet, routing, signals)
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


_GUIDES_ASSUMED = (
    "Step times are fits of measured kernel tables for Qwen3-32B on two H100; nothing is added to a step.",
    "Prompts have 7,200 tokens and answers 1,000, as the load's configuration says.",
    "The service is random per connection; the router's in-flight tokens drain at 15,926 tokens/s, where the real one "
    "releases them with the first token.",
)


def _guide(run: str, servers: str, cluster: str, signals: str, assumed: str) -> MeasuredRun:
    """Return a run of llm-d's guide on eight workers: behind the service, and behind its router."""
    return MeasuredRun(
        title=f"llm-d guide, run {run}: 8 x Qwen3-32B on two H100, {servers}, 3 to 60 requests/s",
        source=f"llm-d (Apache-2.0), {GUIDES}",
        assumed=(*_GUIDES_ASSUMED, assumed),
        replay=functools.partial(
            replay, GUIDES, run, "ladder_qwen3", cluster, SERVICE_AND_ROUTER, SignalsConfig(signals)
        ),
    )


G15 = _guide(
    "G15", "SGLang 0.5.13", "h100x16_qwen3_32b_sglang", "router",
    "SGLang 0.5.13 was not read; it is taken to reserve as 0.4.6 does.",
)  # fmt: skip
G16 = _guide(
    "G16", "vLLM 0.23", "h100x16_qwen3_32b_vllm", "events",
    "vLLM 0.23 is taken for 0.33, with asynchronous scheduling off, 8,192 tokens a step.",
)  # fmt: skip
R37 = MeasuredRun(
    title="llm-d benchmark 37: 4 x Llama-3.1-70B on four H100, vLLM of September 2025, 3 to 20 requests/s",
    source=f"llm-d-kv-cache (Apache-2.0), {RUN37}",
    assumed=(
        "Step times are the preset h100-tp4-llama31-70b: kernels fitted for SGLang and a quarter of d0 a step.",
        "vLLM's release is not published; it is taken for 0.13, with 8,192 tokens a step and blocks of 64.",
        "Engine metrics are scraped every 50 ms; KV events arrive after 50 ms.",
        "Prompts have 9,000 tokens and answers 1,000, as configured; the service counted about 9,340 and 959.",
    ),
    replay=functools.partial(
        replay, RUN37, "1", "ladder_llama70b", "h100x16_llama70b_vllm", FOUR_ARMS,
        SignalsConfig("events", scrape_s=0.05, event_delay_s=0.05),
    ),
)  # fmt: skip
