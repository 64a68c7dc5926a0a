"""The real Mooncake conversation trace, one request at a time, prompts only: SGLang 0.5.23's hits, request by request.

data/oracle lists the tokens that RadixCache matched of each whole prompt; a server counts at most prompt - 1.
"""

from __future__ import annotations

import gzip
import json
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from controllers.eviction import EVICTION
from kvgym.engine.handle import CacheHandle
from kvgym.workloads.base import Workload
from kvgym.workloads.mooncake import Mooncake

POOL_TOKENS = 3_200_000
PROMPT_TOKENS = 72_511_056
UNLIMITED = 1 << 30


@cache
def trace(path: Path, page: int) -> Workload:
    """The first half of the trace with answers of one token, which leave nothing in the cache."""
    load = Mooncake(str(path / "traces/mooncake_conversation_first_half.jsonl.gz"), clients=1).generate(0, page)
    requests = load.requests.copy()
    requests["output_tokens"] = requests["max_new_tokens"] = 1
    return replace(load, requests=requests)


def oracle(path: Path, name: str) -> np.ndarray:
    with gzip.open(path / f"oracle/mooncake-first-{name}.hits.json.gz") as file:
        return np.array(json.load(file))


@pytest.mark.parametrize(
    ("policy", "page", "pool", "name", "total", "evicted"),
    [
        ("lru", 1, POOL_TOKENS, "page1-3200k-lru", 10_465_368, 58_848_041),
        ("lfu", 1, POOL_TOKENS, "page1-3200k-lfu", None, 60_525_605),
        ("slru", 1, POOL_TOKENS, "page1-3200k-slru", None, 60_525_605),
        ("lru", 16, POOL_TOKENS, "page16-3200k-lru", None, None),
        ("lru", 1, UNLIMITED, "page1-unlimited", 25_125_617, 0),
    ],
)
def test_mooncake__every_request_hits_what_sglang_hits(
    run: Any, data_dir: Path, policy: str, page: int, pool: int, name: str, total: int | None, evicted: int | None
) -> None:
    load = trace(data_dir, page)
    records, gone = run(load, policy, pool)
    assert int(records["prompt_tokens"].sum()) == PROMPT_TOKENS
    expected = np.minimum(oracle(data_dir, name), records["prompt_tokens"] - 1) // page * page
    assert list(np.flatnonzero(records["hit_tokens"] != expected)) == []
    assert total in (None, int(records["hit_tokens"].sum()))
    assert evicted in (None, gone)


def test_mooncake__total_at_400k(run: Any, data_dir: Path) -> None:
    records, evicted = run(trace(data_dir, 1), "lru", 400_000)
    assert (int(records["hit_tokens"].sum()), evicted) == (3_012_096, 69_185_319)


def test_mooncake__fifo_request_by_request(data_dir: Path) -> None:
    """As the oracle did it: match the whole prompt, evict to fit, insert.

    Under the server's rule (match all but the last token) one request differs, in SGLang itself too: the match splits
    the prompt's last node, and the upper half counts as created by the split.
    """
    load = trace(data_dir, 1)
    cache = CacheHandle(load.forest.nodes, EVICTION.load("fifo"), POOL_TOKENS)
    hits = []
    for node, tokens in load.requests[["prompt_node", "prompt_tokens"]].tolist():
        hits.append(cache.match(0, node, tokens)[0])
        cache.evict(0, tokens - hits[-1] - cache.free_tokens(0))
        cache.insert(0, node, tokens)
    assert list(np.flatnonzero(hits != oracle(data_dir, "page1-3200k-fifo"))) == []


def test_mooncake__fifo_under_the_servers_rule(run: Any, data_dir: Path) -> None:
    records, evicted = run(trace(data_dir, 1), "fifo", POOL_TOKENS)
    expected = np.minimum(oracle(data_dir, "page1-3200k-fifo"), records["prompt_tokens"] - 1)
    assert list(np.flatnonzero(records["hit_tokens"] != expected)) == [500]
    assert (int(records["hit_tokens"].sum()), evicted) == (10_509_253, 58_828_401)
