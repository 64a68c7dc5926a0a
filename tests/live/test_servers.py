"""Started servers: the policy that was asked for is in force."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kvgym.backends.sglang import pool
from kvgym.backends.sglang.launcher import Fleet, check_server
from kvgym.config.signals import SignalsConfig
from kvgym.errors import BackendError, ConfigError

pytestmark = [pytest.mark.live, pytest.mark.slow, pytest.mark.timeout(600)]
GROUPS, PREFIX_TOKENS, CYCLES = 24, 200, 12
EVENTS = SignalsConfig(observability="events")


def test_attach__other_policy_and_nobody_there(make_cluster: Any) -> None:
    servers = pool.acquire(make_cluster(), "lru")
    with pytest.raises(
        BackendError, match=r"evicts by 'lru', this run asks for 'rlt'.*--radix-cache-backend kvgym-rlt"
    ):
        check_server(servers[0].url, "rlt")
    with pytest.raises(BackendError, match=r"http://127\.0\.0\.1:9"):
        pool.acquire(make_cluster(workers=1, urls=["http://127.0.0.1:9"]), "lru")
    with pytest.raises(ConfigError, match="1 addresses for 2 workers"):
        pool.acquire(make_cluster(urls=[servers[0].url]), "lru")


def test_no_kv_events__the_error_says_what_to_set(make_cluster: Any, open_backend: Any, tools: Any) -> None:
    workload = tools.text_workload([[7] * 50], [4])
    with pytest.raises(ConfigError, match=r"publishes no KV events.*live\.kv_events"):
        open_backend(workload, make_cluster(), "lru", 0, EVENTS)
    with pytest.raises(ConfigError, match=r"observability \(router or events\)"):
        open_backend(workload, make_cluster(), "lru", 0, SignalsConfig(observability="exact"))


def cycles() -> list[list[int]]:
    """Return prompts that visit all groups in turn, each with an ending of its own."""
    return [
        [5 + (group * 37 + i * 11) % 990 for i in range(PREFIX_TOKENS)]
        + [5 + ((cycle * GROUPS + group) * 13 + i) % 990 for i in range(20)]
        for cycle in range(CYCLES)
        for group in range(GROUPS)
    ]


@pytest.mark.parametrize(("eviction", "low", "high"), [("lru", 0.0, 0.02), ("rlt", 0.25, 0.6)])
def test_eviction__rlt_in_a_stock_server_beats_lru_on_cycles(
    eviction: str, low: float, high: float, make_cluster: Any, open_backend: Any, tools: Any
) -> None:
    prompts = cycles()
    cluster = make_cluster(workers=1, kv_events=True) if eviction == "rlt" else make_cluster()
    backend = open_backend(tools.text_workload(prompts, [4] * len(prompts)), cluster, eviction, 0)
    records = tools.play(backend, lambda decision: 0)[GROUPS:]
    hit_rate = records["hit_tokens"].sum() / records["prompt_tokens"].sum()
    assert low <= hit_rate <= high
    fleet = pool.fleet()
    assert fleet is not None
    if eviction == "rlt":
        assert fleet.servers[0].info["radix_cache_backend"] == "kvgym-rlt"
        assert "kvgym eviction policy 'rlt' is in force" in (fleet.logs / "worker-0.log").read_text()


def test_rlt__kv_events_foretell_what_is_left_of_eaten_prefixes(
    make_cluster: Any, open_backend: Any, tools: Any
) -> None:
    workload = tools.text_workload(cycles()[:100], [4] * 100)
    workload.requests["think_s"] = 0.1  # events come a little after the answer
    backend = open_backend(workload, make_cluster(workers=1, kv_events=True), "rlt", 0, EVENTS)
    known: dict[int, int] = {}

    def choose(decision: Any) -> int:
        known[decision.request] = int(decision.hit_tokens[0])
        return 0

    records = tools.play(backend, choose)
    partly = (records["hit_tokens"] > 0) & (records["hit_tokens"] < PREFIX_TOKENS)
    assert partly.sum() > 10
    assert np.mean([known[r] for r in range(100)] == records["hit_tokens"]) > 0.9


def test_start__says_why_a_server_does_not_start(make_cluster: Any, tmp_path: Path) -> None:
    cluster = make_cluster(workers=1, model=str(tmp_path / "nothing"))
    with pytest.raises(BackendError, match=r"server 0 ended with status .*worker-0\.log"):
        Fleet(cluster, "lru", tmp_path / "logs")
    with pytest.raises(BackendError, match=r"cannot run .*set live\.python"):
        Fleet(make_cluster(workers=1, python=str(tmp_path / "python")), "lru", tmp_path / "logs")
