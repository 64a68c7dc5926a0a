"""One vLLM on an RTX 4090 was overloaded with 300 ShareGPT requests, timed one by one."""

from __future__ import annotations

import gzip
import json

import numpy as np

from kvgym.config.cluster import ClusterConfig
from kvgym.logs.rows import locate
from kvgym.validation.base import Figure, MeasuredRun, serve
from kvgym.workloads.blocks import Blocks

FILE = "llmservingsim_sharegpt300_llama31_8b_vllm_rtx4090.jsonl.gz"
BLOCKS, BLOCK_TOKENS = 2588, 16
NAMES = ("TTFT P50, s", "TTFT P90, s", "TPOT P50, s", "TPOT P90, s", "latency P50, s", "makespan, s")


def _figures(ttft_s: np.ndarray, latency_s: np.ndarray, output_tokens: np.ndarray, makespan_s: float) -> list[float]:
    tpot_s = (latency_s - ttft_s) / (output_tokens - 1)
    tails = [float(value) for times in (ttft_s, tpot_s) for value in np.percentile(times, [50, 90])]
    return [*tails, float(np.percentile(latency_s, 50)), float(makespan_s)]


def measured() -> list[float]:
    """Return the run's figures in the order of `NAMES`."""
    with gzip.open(locate(FILE), "rt") as file:
        rows = [json.loads(line) for line in file]
    keys = ("queued_ts", "first_token_ts", "last_token_ts", "out")
    queued_s, first_s, last_s, output = (np.array([row[key] for row in rows]) for key in keys)
    return _figures(first_s - queued_s, last_s - queued_s, output, last_s.max() - queued_s.min())


def simulated(engine: str = "vllm-0.33") -> list[float]:
    """Return the simulator's figures in the order of `NAMES`."""
    cluster = ClusterConfig(
        workers=1, capacity_tokens=BLOCKS * BLOCK_TOKENS, page_size=BLOCK_TOKENS, engine=engine, chunk_tokens=2048,
        max_running=256, cost="rtx4090-llama31-8b", request_overhead_s=0.0,
    )  # fmt: skip
    done = serve(Blocks(FILE).generate(0, BLOCK_TOKENS), cluster, "round_robin")
    arrival_s = done["arrival_s"]
    spans = (done["first_token_s"] - arrival_s, done["finish_s"] - arrival_s, done["output_tokens"])
    return _figures(*spans, done["finish_s"].max() - arrival_s.min())


def replay() -> list[Figure]:
    """Return the figures, measured and simulated."""
    return [Figure("", 0, *figure) for figure in zip(NAMES, measured(), simulated(), strict=True)]


RUN = MeasuredRun(
    title="One vLLM 0.19, Llama-3.1-8B in bf16 on one RTX 4090, 300 ShareGPT requests at 10.3/s, 2,588 blocks of 16",
    source=f"LLMServingSim (CASYS KAIST, MIT), calibration/{FILE}",
    assumed=(
        "Step times are the preset rtx4090-llama31-8b, fitted to the GPU's layer profile and to no run.",
        "vLLM 0.19 was not read; its scheduler is taken for 0.33's (0.13's gives the same within a point).",
        "Times count from the server's queue, so a request costs nothing on its way.",
    ),
    replay=replay,
)
