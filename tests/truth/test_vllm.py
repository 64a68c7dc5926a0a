"""Counters of a real vLLM: 300 ShareGPT requests, vLLM 0.13, Llama-3.1-8B on one A6000, blocks of 16 tokens.

vLLM counts what SGLang counts (whole blocks of the prompt but its last token); its cache of 221,504 tokens never fills.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kvgym.backends.simulated import SimulatedBackend
from kvgym.config.cluster import ClusterConfig
from kvgym.workloads.blocks import Blocks

FILE = "calibration/llmservingsim_sharegpt_pulse_a6000_blk16.jsonl.gz"
POOL_TOKENS = 221_504
ONE = [(21_264, 82_645)]
"""Hit and queried tokens of one instance."""
TWO = [(4_240, 39_877), (5_840, 42_768)]
"""The same requests alternating over two instances, the first one to instance 0."""


def counters(records: np.ndarray, workers: int) -> list[tuple[int, int]]:
    parts = [records[records["worker"] == w] for w in range(workers)]
    return [(int(part["hit_tokens"].sum()), int(part["prompt_tokens"].sum())) for part in parts]


@pytest.mark.parametrize("engine", ["", "vllm-0.13", "vllm-0.33"])
@pytest.mark.parametrize("expected", [ONE, TWO], ids=["one", "two"])
def test_vllm__one_at_a_time(run: Any, data_dir: Path, expected: list[tuple[int, int]], engine: str) -> None:
    load = Blocks(str(data_dir / FILE), clients=1).generate(0, 16)
    records, evicted = run(load, "lru", POOL_TOKENS, len(expected), engine=engine)
    assert counters(records, len(expected)) == expected
    assert evicted == 0


@pytest.mark.parametrize("speed", [1.0, 0.5])
@pytest.mark.parametrize("expected", [ONE, TWO], ids=["one", "two"])
def test_vllm__at_recorded_arrivals(data_dir: Path, expected: list[tuple[int, int]], speed: float) -> None:
    """There is no A6000 preset; hits hardly depend on speed (one L40S: 21,264, half as fast: 21,152)."""
    cluster = ClusterConfig(
        workers=len(expected), capacity_tokens=POOL_TOKENS, page_size=16, cost="l40s-llama31-8b", speed=speed
    )
    backend = SimulatedBackend(Blocks(str(data_dir / FILE)).generate(0, 16), cluster, "lru", seed=0)
    while (decision := backend.run_to_decision()) is not None:
        backend.apply(decision.request % len(expected))
    found = np.array(counters(backend.records(), len(expected)))
    assert (found[:, 1] == np.array(expected)[:, 1]).all()
    assert np.abs(found[:, 0] - np.array(expected)[:, 0]).max() <= 750
