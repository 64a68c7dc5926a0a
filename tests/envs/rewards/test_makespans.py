"""Three makespans: each sums to what it is called after, and only one of them is moved by batching."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from kvgym.backends.simulated import SimulatedBackend, engine_options
from kvgym.config.cluster import ClusterConfig, resolve_cluster
from kvgym.config.loader import resolve_workload
from kvgym.engine.serving.alone import service_s
from kvgym.envs.routing import RoutingEnv

GSP = {"source": "gsp", "groups": 6, "prompts_per_group": 6, "lens": [512, 3000], "output_tokens": 40}
TERMS = ("makespan", "makespan_alone", "makespan_completion")


def returns(rate_rps: float, cluster: Any, seed: int = 0) -> tuple[dict[str, float], RoutingEnv, float]:
    """Route in turn; return the sum of each term, the environment and the time of its first decision."""
    env = RoutingEnv({**GSP, "rate_rps": rate_rps}, cluster, reward=dict.fromkeys(TERMS, 1.0))
    _, info = env.reset(options={"seed": seed})
    start_s, sums, over, i = info["time_s"], dict.fromkeys(TERMS, 0.0), False, 0
    while not over:
        _, _, over, _, info = env.step(i % 2)
        sums = {name: total + info["rewards"][name] for name, total in sums.items()}
        i += 1
    return sums, env, start_s


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"chunk_tokens": 512},
        {"speed": 2.0},
        {"page_size": 16},
        {"engine": "vllm-0.33", "page_size": 16},
        {"cost": {"model": "analytic", "miss_ms": 0.2, "cached_ms": 0.01, "output_ms": 3.0}, "one_at_a_time": True},
    ],
    ids=lambda changes: "-".join(changes) or "default",
)
def test_alone__is_the_busy_time_of_requests_that_never_meet(changes):
    base = {"workers": 2, "capacity_tokens": 16_000} | changes
    sums, env, _ = returns(0.01, base)
    assert sums["makespan_alone"] == pytest.approx(-env.backend.stats()["makespan_load_s"], rel=1e-9)
    assert env.backend.stats()["makespan_load_s"] > 0.5


def test_alone__is_the_papers_sum_of_costs():
    cost = {"model": "analytic", "miss_ms": 0.2, "cached_ms": 0.01, "output_ms": 3.0, "fixed_ms": 5.0}
    sums, env, _ = returns(40.0, {"workers": 2, "capacity_tokens": 16_000, "cost": cost, "one_at_a_time": True})
    rows = env.records()
    hit, miss = rows["hit_tokens"], rows["prompt_tokens"] - rows["hit_tokens"]
    cost_s = (0.01 * hit + 0.2 * miss + 5.0 + 3.0 * (rows["output_tokens"] - 1)) / 1000
    loads_s = np.bincount(rows["worker"], cost_s)
    assert sums["makespan_alone"] == pytest.approx(-loads_s.max(), rel=1e-6)


def test_batching__moves_the_busy_time_and_not_what_requests_cost_alone():
    slow, fast = (returns(rate, {"workers": 2, "capacity_tokens": 400_000})[0] for rate in (0.01, 40.0))
    assert fast["makespan"] > 0.6 * slow["makespan"], "less negative: batches are cheap"
    assert fast["makespan_alone"] == pytest.approx(slow["makespan_alone"], rel=0.1)


def test_completion__is_the_time_since_the_first_decision():
    sums, env, start_s = returns(5.0, "l40x4")
    assert sums["makespan_completion"] == pytest.approx(start_s - env.backend.stats()["makespan_s"])


def test_service__in_numbers():
    options = engine_options(resolve_cluster("l40x4"))
    o = options.view(np.recarray)[0]
    for name in ("p0", "p_tok", "p_quad", "p_kv", "d0", "d_seq", "d_kvtok", "step_s"):
        o[name] = 0.0
    o["chunk"], o["p0"], o["p_tok"], o["p_kv"], o["d0"], o["d_kvtok"] = 100, 1.0, 0.1, 0.001, 0.5, 0.01
    # 250 tokens, 30 cached: 220 in chunks of 100, 100, 20 that end at 130, 230, 250; then 2 decodes at 251 and 252.
    assert service_s(o, 250, 30, 3) == pytest.approx(3 + 22 + 0.61 + 1.0 + 0.01 * (251 + 252))
    assert service_s(o, 250, 250, 1) == pytest.approx(1 + 0.1 + 0.25), "one token is computed all the same"


def test_compiled__gives_what_python_gives():
    source = resolve_workload({**GSP, "rate_rps": 20.0})
    backend = SimulatedBackend(source.generate(1), ClusterConfig(workers=1, capacity_tokens=9000), "lru", 1)
    while backend.run_to_decision() is not None:
        backend.apply(0)
    rows, o = backend.records(), engine_options(ClusterConfig(workers=1, capacity_tokens=9000)).view(np.recarray)[0]
    cost_s = [service_s(o, *map(int, row)) for row in rows[["prompt_tokens", "hit_tokens", "output_tokens"]].tolist()]
    assert backend.progress().alone_s == pytest.approx(sum(cost_s))
