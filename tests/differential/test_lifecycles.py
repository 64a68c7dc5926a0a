"""Whole requests, one at a time: kvgym's engine against SGLang's RadixCache driven as SGLang's scheduler drives it."""

from __future__ import annotations

import gzip
import itertools
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kvgym.backends.simulated import SimulatedBackend
from kvgym.config.cluster import ClusterConfig
from kvgym.workloads.base import Workload
from kvgym.workloads.fixed import Fixed
from kvgym.workloads.gsp import GSP
from kvgym.workloads.mooncake import Mooncake

pytestmark = pytest.mark.timeout(900)  # shrinking a failure takes its time
POLICIES = ("lru", "lfu", "fifo", "mru", "filo", "slru", "priority")
GSP_LENS = (64, 128, 256, 512, 1024)
GSP_CAPACITY_TOKENS = 24_500
MOONCAKE = "mooncake_conversation_first_half.jsonl.gz"
MOONCAKE_REQUESTS = 1_500
MOONCAKE_CAPACITY_TOKENS = 1_600_000

# prompt length, output length, priority; the tokens come from one of a few sequences
REQUEST = st.tuples(st.integers(0, 5), st.integers(1, 70), st.integers(1, 24), st.integers(0, 2))
REQUESTS = st.lists(st.lists(REQUEST, min_size=3), min_size=1)
SEQUENCES = st.lists(st.lists(st.integers(0, 1), min_size=94, max_size=94), min_size=1, max_size=6)
SPARE_TOKENS = st.integers(0, 100)


def serve(workload: Workload, eviction: str, capacity_tokens: int) -> list[list[int]]:
    """Serve on one worker; return [cached tokens, tokens evicted on its behalf] per request, in order of arrival."""
    cluster = ClusterConfig(
        workers=1,
        capacity_tokens=capacity_tokens,
        page_size=workload.page_size,
        chunk_tokens=1 << 20,
        max_prefill_tokens=1 << 20,
    )
    backend = SimulatedBackend(workload, cluster, eviction, seed=0)
    order, evicted = [], []
    while (decision := backend.run_to_decision()) is not None:
        assert decision.running[0] == decision.queued[0] == 0
        order.append(decision.request)
        evicted.append(int(backend.engine.cache.workers["evicted"][0]))
        backend.apply(0)
    evicted.append(int(backend.engine.cache.workers["evicted"][0]))
    hits = {int(row["request"]): int(row["hit_tokens"]) for row in backend.records()}
    return [[hits[r], after - before] for r, before, after in zip(order, evicted, evicted[1:], strict=False)]


def ask(oracle: Any, page_size: int, policy: str, capacity: int, requests: list, block_tokens: int = 1) -> list:
    """Return what `serve` returns, of requests [ids of blocks, prompt tokens, answer, priority] in SGLang's cache."""
    sizes = {"page_size": page_size, "capacity_tokens": capacity, "block_tokens": block_tokens}
    return oracle.ask(do="lifecycles", policy=policy, requests=requests, **sizes)


def first_difference(ours: list[list[int]], theirs: list[list[int]]) -> str:
    """Describe where two tables part; empty when they don't."""
    assert len(ours) == len(theirs)
    for index, (mine, truth) in enumerate(zip(ours, theirs, strict=True)):
        if mine != truth:
            return f"request {index}: [cached, evicted] is {mine}, SGLang says {truth}"
    return ""


@pytest.mark.parametrize("page_size", [1, 16])
@pytest.mark.parametrize("policy", POLICIES)
def test_lifecycles__random_requests(oracle: Any, count: Any, effort: int, policy: str, page_size: int) -> None:
    compared = 0

    @settings(
        max_examples=6 * effort,
        deadline=None,
        database=None,
        print_blob=True,
        suppress_health_check=list(HealthCheck),
    )
    @given(SEQUENCES, REQUESTS, SPARE_TOKENS)
    def compare(sequences: list[list[int]], drawn: list[list[tuple[int, ...]]], spare_tokens: int) -> None:
        nonlocal compared
        rows, asked = [], []
        for which, prompt, output, priority in (request for part in drawn for request in part):
            tokens = sequences[which % len(sequences)]
            answer = tokens[: prompt + output]
            asked.append([tokens[:prompt], prompt, answer[prompt:], priority])
            rows.append(
                {
                    "ids": tokens[:prompt],
                    "answer": answer,
                    "output_tokens": output,
                    "priority": priority,
                    "arrival_s": 1000.0 * len(rows),
                }
            )
        # enough for the longest request and the pages that admission keeps free, little more
        capacity = 94 + 4 * page_size + spare_tokens
        theirs = ask(oracle, page_size, policy, capacity, asked)
        ours = serve(Fixed(tuple(rows)).generate(0, page_size), policy, capacity)
        assert not (difference := first_difference(ours, theirs)), f"{difference}; capacity {capacity}, {asked}"
        compared += len(asked)

    compare()
    count("requests", f"{policy}, page size {page_size}", compared)


@pytest.mark.parametrize(
    ("groups", "policy", "page_size", "hit_tokens", "evicted_tokens"),
    [
        pytest.param(48, "lru", 1, 280_704, 285_142, marks=pytest.mark.soak),
        (60, "lru", 1, 236_160, 506_956),
        (60, "fifo", 1, 369_024, 374_092),
        pytest.param(60, "lfu", 1, 303_552, 439_564, marks=pytest.mark.soak),
        pytest.param(60, "slru", 1, 303_552, 439_564, marks=pytest.mark.soak),
        (60, "lru", 16, 249_728, 487_808),
        pytest.param(64, "lru", 1, 0, 774_220, marks=pytest.mark.soak),
        pytest.param(72, "lru", 1, 0, 877_702, marks=pytest.mark.soak),
    ],
)
def test_lifecycles__gsp(
    oracle: Any, groups: int, policy: str, page_size: int, hit_tokens: int, evicted_tokens: int
) -> None:
    gsp = GSP(groups=groups, lens=GSP_LENS, order="worst", clients=1, shared_literal=False)
    workload = gsp.generate(0, page_size)
    requests = []
    for row in workload.requests:
        prompt, total = int(row["prompt_tokens"]), int(row["prompt_tokens"] + row["output_tokens"])
        ids = workload.forest.materialise(int(row["output_node"]), total, 1 << 20).tolist()
        requests.append([ids[:prompt], prompt, ids[prompt:], 0])
    theirs = ask(oracle, page_size, policy, GSP_CAPACITY_TOKENS, requests)
    assert [sum(column) for column in zip(*theirs, strict=True)] == [hit_tokens, evicted_tokens]
    assert not first_difference(serve(workload, policy, GSP_CAPACITY_TOKENS), theirs)


@pytest.mark.parametrize(
    ("policy", "page_size"), [("lru", 1), pytest.param("fifo", 1, marks=pytest.mark.soak), ("lru", 16)]
)
def test_lifecycles__mooncake(oracle: Any, data_dir: Path, policy: str, page_size: int) -> None:
    file = data_dir / "traces" / MOONCAKE
    with gzip.open(file, "rt") as lines:
        rows = [json.loads(line) for line in itertools.islice(lines, MOONCAKE_REQUESTS)]
    requests = [[row["hash_ids"], row["input_length"], row["output_length"], 0] for row in rows]
    theirs = ask(oracle, page_size, policy, MOONCAKE_CAPACITY_TOKENS, requests, block_tokens=512)
    assert sum(cached for cached, _ in theirs) > 0 < sum(evicted for _, evicted in theirs)
    workload = Mooncake(path=str(file), clients=1, limit=MOONCAKE_REQUESTS).generate(0, page_size)
    assert not first_difference(serve(workload, policy, MOONCAKE_CAPACITY_TOKENS), theirs)
