"""The prefix cache counters of vLLM instances whose cache never fills must be met exactly."""

from __future__ import annotations

from kvgym.config.cluster import ClusterConfig
from kvgym.validation.base import Figure, MeasuredRun, serve
from kvgym.workloads.blocks import Blocks

FILE = "llmservingsim_sharegpt_pulse_a6000_blk16.jsonl.gz"
POOL_TOKENS = 221_504
COUNTERS = {1: [(21_264, 82_645)], 2: [(4_240, 39_877), (5_840, 42_768)]}
"""Workers -> hit and queried tokens of each; with two of them the requests alternate."""


def replay() -> list[Figure]:
    """Return hit and queried tokens of each instance."""
    figures = []
    for workers, expected in COUNTERS.items():
        cluster = ClusterConfig(
            workers=workers, capacity_tokens=POOL_TOKENS, page_size=16, engine="vllm-0.13", chunk_tokens=2048,
            max_running=128, cost="a100-llama31-8b",
        )  # fmt: skip
        done = serve(Blocks(FILE, clients=1).generate(0, 16), cluster, "round_robin")
        for worker, (hit, queried) in enumerate(expected):
            own = done[done["worker"] == worker]
            arm = f"instance {worker + 1} of {workers}"
            figures.append(Figure(arm, 0, "hit tokens", hit, int(own["hit_tokens"].sum())))
            figures.append(Figure(arm, 0, "queried tokens", queried, int(own["prompt_tokens"].sum())))
    return figures


RUN = MeasuredRun(
    title="vLLM 0.13, Llama-3.1-8B on one A6000 and on two, 300 ShareGPT requests one after the other, blocks of 16",
    source=f"LLMServingSim (CASYS KAIST, MIT), calibration/{FILE} and ..._kv_metrics.csv",
    assumed=("Requests come one after the other; what a step takes changes no counter.",),
    replay=replay,
)
