"""Measures speed, memory and compile time: requests/s per eviction policy, decisions/s, steps/s, GiB, seconds.

Times are process CPU seconds on one core, the best of several runs; the machine's load still shows, so compare figures
of one run only. Memory and compile time are those of fresh processes.
"""

from __future__ import annotations

import dataclasses
import json
import multiprocessing
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from rich.console import Console

from kvgym.backends.simulated import SimulatedBackend
from kvgym.config.cluster import ClusterConfig
from kvgym.config.names import table
from kvgym.errors import WorkloadError
from kvgym.harness.report.console import print_table
from kvgym.harness.tools.bench_memory import peak_memory_gib
from kvgym.workloads.base import Workload
from kvgym.workloads.gsp import GSP
from kvgym.workloads.mooncake import Mooncake

TRACE_COST = {"p0_ms": 16.5, "p_tok_ms": 0.01518, "p_quad_ms": 8.42e-7, "d0_ms": 5.0}
"""AISimulate's default prefill pass of n tokens, 16.5 + .01518 n + 4.21e-7 n^2 ms, in our form (p_quad n^2 / 2).

Its decode time is not known; 5 ms is an assumption. `scripts/bench_peers.py` compares with AISimulate itself.
"""
PAPER_FLEET = ClusterConfig()
TRACE_FLEET = ClusterConfig(
    workers=8, capacity_tokens=400_000, cost=TRACE_COST, request_overhead_s=0.0, step_overhead_s=0.0
)
TRACE_POLICIES = ("lru", "rlt")
LBGR_FLEETS = (10, 100)
"""Workers on which LBGR's decision time is bounded (design budget: 50 and 200 microseconds)."""
WARM_UP = 50
"""Decisions that are not timed: they load compiled code."""


def best_of(runs: int, setup: Callable[[], Any], work: Callable[[Any], object]) -> float:
    """Return the fewest CPU seconds that `work` took over `runs` runs, each on a fresh `setup`."""
    best = float("inf")
    for _ in range(runs):
        subject = setup()
        start = time.process_time()
        work(subject)
        best = min(best, time.process_time() - start)
    return best


def engine_rps(workload: Workload, fleet: ClusterConfig, policy: str, runs: int = 5) -> float:
    """Return simulated requests per CPU second under round robin."""

    def setup() -> SimulatedBackend:
        return SimulatedBackend(workload, fleet, policy, seed=0)

    seconds = best_of(runs, setup, lambda backend: backend.engine.run_rule(0))
    return len(workload.requests) / seconds


def bench_engine() -> dict[str, float]:
    """Return requests/s of the default GSP on four workers per eviction policy."""
    workload = GSP().generate(1)
    return {policy: round(engine_rps(workload, PAPER_FLEET, policy)) for policy in table("eviction")}


def bench_trace() -> dict[str, Any] | None:
    """Return speed and median TTFT on the Mooncake first half at recorded arrivals; None where the file is absent."""
    try:
        workload = Mooncake().generate(1)
    except WorkloadError:
        return None
    backend = SimulatedBackend(workload, TRACE_FLEET, "lru", seed=0)
    backend.engine.run_rule(0)
    records = backend.records()
    speed = {policy: round(engine_rps(workload, TRACE_FLEET, policy, runs=3)) for policy in TRACE_POLICIES}
    return {
        "requests_per_s": speed,
        "median_ttft_s": round(float(np.median(records["first_token_s"] - records["arrival_s"])), 4),
    }


def bench_env(name: str, steps: int = 20_000) -> float:
    """Return scalar steps/s of an environment on the default GSP with a round-robin action below 4."""
    import gymnasium

    import kvgym  # noqa: F401  registers the environments

    env = gymnasium.make(name, disable_env_checker=True).unwrapped
    env.reset(seed=0)
    for i in range(500):
        env.step(i % 4)

    def work(_: object) -> None:
        for i in range(steps):
            if env.step(i % 4)[2]:
                env.reset(seed=i)

    return steps / best_of(3, lambda: None, work)


def bench_vector(copies: int = 64) -> dict[str, float]:
    """Return decisions per second of wall time of the vector environment on the default GSP, resets included.

    A round-robin action, two episodes of each copy after a first one; with a new seed for each, and with seeds from a
    pool of eight. Threads: one per CPU.
    """
    import gymnasium

    import kvgym  # noqa: F401  registers the environments

    speeds: dict[str, float] = {}
    for case, pool in (("new seeds", None), ("seed pool", 8)):
        envs = gymnasium.make_vec("kvgym/Routing-v0", copies, seed_pool=pool)
        envs.reset(seed=0)
        _play(envs, copies)
        start = time.perf_counter()
        decisions = _play(envs, 2 * copies)
        speeds[case] = round(decisions / (time.perf_counter() - start))
        envs.close()
    return speeds


def _play(envs: Any, episodes: int) -> int:
    """Route in turn until so many episodes have ended; return the number of decisions."""
    steps, ended, turn = 0, 0, np.arange(envs.num_envs)
    workers = envs.single_action_space.n
    while ended < episodes:
        ended += int(envs.step((turn + steps) % workers)[2].sum())
        steps += 1
    return steps * envs.num_envs


def bench_routing() -> dict[str, float]:
    """Return CPU microseconds per decision of each routing controller (act and observe), the default GSP on 4 workers.

    LBGR also on 10 and on 100 workers. The load of each worker is the same in all of them.
    """
    workload = GSP().generate(1)
    # a learned router needs a file, and takes as long as its network
    found = {name: round(decision_us(workload, name), 1) for name in table("routing") if name != "learned"}
    for workers in LBGR_FLEETS:
        load = GSP(groups=8 * workers, prompts_per_group=8, rate_rps=3.0 * workers).generate(1)
        for name in ("lbgr_release", "lbgr"):
            found[f"{name}, {workers} workers"] = round(decision_us(load, name, workers=workers), 1)
    return found


def decision_us(workload: Workload, routing: str, eviction: str = "lru", workers: int = 4) -> float:
    """Return CPU microseconds per decision of one routing controller over one episode, after `WARM_UP` others."""
    fleet = dataclasses.replace(PAPER_FLEET, workers=workers)
    backend, controller = SimulatedBackend(workload, fleet, eviction, seed=0), table("routing").load(routing)()
    controller.reset(backend.spec, 0)
    spent, decisions = 0.0, 0
    while (decision := backend.run_to_decision()) is not None:
        finished = backend.completions()
        start = time.process_time()
        if len(finished):
            controller.observe(finished)
        worker = controller.act(decision)
        if decisions >= WARM_UP:
            spent += time.process_time() - start
        decisions += 1
        backend.apply(worker)
    return 1e6 * spent / max(decisions - WARM_UP, 1)


def cold_compile_s() -> float:
    """Return wall seconds of a first small run with every policy that the quickstart uses, with an empty cache."""
    code = (
        "from kvgym.harness.tools.bench import decision_us; from kvgym.workloads.gsp import GSP;"
        "w = GSP(groups=8, prompts_per_group=8).generate(0); [decision_us(w, r, e) for e in ('lru', 'rlt')"
        " for r in ('cache_aware', 'cache_aware_014', 'lbgr_release', 'round_robin')]"
    )
    with tempfile.TemporaryDirectory() as folder:
        start = time.perf_counter()
        subprocess.run([sys.executable, "-c", code], env={**os.environ, "KVGYM_CACHE": folder}, check=True)
        return round(time.perf_counter() - start, 1)


def in_fresh_process(function: Callable[..., float], *arguments: Any) -> float:
    """Run `function` in a new interpreter and return its result."""
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(function, arguments)


def measure() -> dict[str, Any]:
    """Return every benchmark by name."""
    return {
        "engine_requests_per_s": bench_engine(),
        "mooncake": bench_trace(),
        "routing_v0_steps_per_s": round(bench_env("kvgym/Routing-v0")),
        "eviction_v0_steps_per_s": round(bench_env("kvgym/Eviction-v0")),
        "joint_v0_steps_per_s": round(bench_env("kvgym/Joint-v0")),
        "vector_decisions_per_s": bench_vector(),
        "routing_decision_us": bench_routing(),
        "memory_gib": {
            "1,000,000 requests on 16 workers": in_fresh_process(peak_memory_gib, 31_250, 32, 16, 48.0),
            "1,000 workers on 1,000,000 nodes": in_fresh_process(peak_memory_gib, 7_900, 64, 1000, 3000.0),
        },
        "cold_compile_s": cold_compile_s(),
    }


def print_figures(console: Console, results: dict[str, Any]) -> None:
    """Print a row per figure."""
    rows = []
    for name, value in results.items():
        cases = value.items() if isinstance(value, dict) else [("", value)]
        rows += [[name, str(case), json.dumps(number)] for case, number in cases]
    print_table(console, ["benchmark", "case", "value"], rows, names=2)
