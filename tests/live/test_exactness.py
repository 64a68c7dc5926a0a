"""The simulator gives SGLang's cached tokens on every request, one at a time, and the servers' evicted totals."""

from __future__ import annotations

import gzip
import json
from typing import Any

import numpy as np
import pytest

from kvgym.config.loader import resolve_workload
from kvgym.workloads.base import Workload

pytestmark = [pytest.mark.live, pytest.mark.slow, pytest.mark.timeout(900)]
LEAST = 500


def gsp(page_size: int, tools: Any, data_dir: Any) -> Workload:
    fields = {"groups": 32, "prompts_per_group": 16, "lens": [80, 240, 400], "output_tokens": 3, "clients": 1}
    return resolve_workload({"source": "gsp", "rate_rps": None, **fields}).generate(3, page_size)


def sharegpt(page_size: int, tools: Any, data_dir: Any) -> Workload:
    """ShareGPT's conversations with token ids folded into the tiny vocabulary, answers of at most 3 tokens."""
    source = resolve_workload({"source": "sharegpt", "requests": 700, "clients": 1})
    made = source.generate(0, 1)
    prompts, outputs, sessions = [], [], []
    for row in made.requests:
        ids = made.forest.materialise(int(row["prompt_node"]), int(row["prompt_tokens"]), 1 << 31) % 990 + 5
        if len(ids) <= 1500 and len(prompts) < 520:
            prompts.append(ids.tolist())
            outputs.append(min(int(row["output_tokens"]), 3))
            sessions.append(len(sessions))
    return tools.text_workload(prompts, outputs, page_size)


def miniswe(page_size: int, tools: Any, data_dir: Any) -> Workload:
    """Software-engineering sessions, each 16-token block as two tokens, cut at 3,900; turns continue real answers.

    Sessions run twice, so that the second half finds, or does not find, what the first has left.
    """
    prompts: list[list[int]] = []
    outputs: list[int] = []
    sessions: list[int] = []
    with gzip.open(data_dir / "traces" / "lmcache_miniswe_agent_blk16.jsonl.gz", "rt") as file:
        lines = [*file]
        for session, line in enumerate(lines[: len(lines) * 3 // 5] * 2):
            for call in json.loads(line)["requests"]:
                blocks = [block for start, count in call["h"] for block in range(start, start + count)]
                ids = [token for block in blocks for token in (block % 991 + 5, block // 991 + 5)]
                if len(ids) > 3900:
                    break
                prompts.append(ids)
                outputs.append(max(call["out"] // 16, 1))
                sessions.append(session)
    return tools.text_workload(prompts, outputs, page_size, sessions=sessions)


OFTEN = {(16, gsp, 2), (16, miniswe, 1), (1, sharegpt, 2), (1, gsp, 1)}
"""What every run of the tests serves; the others need --soak."""
CASES = [
    pytest.param(
        *case, id=f"{make.__name__}-page{page_size}-{workers}", marks=[] if case in OFTEN else pytest.mark.soak
    )
    for page_size in (16, 1)  # one fleet each; the second is what other files' tests want, too
    for make in (gsp, sharegpt, miniswe)
    for workers in (1, 2)
    if (case := (page_size, make, workers))
]


@pytest.mark.parametrize(("page_size", "make", "workers"), CASES)
def test_cached_tokens__equal_on_every_request(
    make: Any, page_size: int, workers: int, make_cluster: Any, open_backend: Any, tools: Any, data_dir: Any
) -> None:
    workload = make(page_size, tools, data_dir)
    assert len(workload.requests) >= LEAST
    fixed = (np.arange(len(workload.requests)) * 7 // 3) % workers
    cluster = make_cluster(workers=2, page_size=page_size)
    live = open_backend(workload, cluster, "lru", 0)
    truth = tools.play(live, lambda decision: int(fixed[decision.request]))
    simulated = tools.simulated(tools.replayed(live, workload), cluster, "lru", 0)
    ours = tools.play(simulated, lambda decision: int(fixed[decision.request]))
    different = np.flatnonzero(ours["hit_tokens"] != truth["hit_tokens"])
    assert different.tolist() == []
    assert simulated.stats()["evicted_tokens"] == live.stats()["evicted_tokens"]
    assert sum(live.stats()["evicted_tokens"]) > 0
