"""Plays `kvgym route` and its peers on real CPU servers: the same requests by SGLang's own bench_serving, in one table.

    python scripts/route_demo.py                       round robin, LBGR and a direct server
    python scripts/route_demo.py --peers               also the real sglang-router, cache_aware and blend

Two unmodified SGLang servers serve a tiny random model on the CPU (scripts/setup_live.sh; KVGYM_LIVE_PYTHON names the
interpreter). Hits are the servers' own counters, each row after an emptied cache. The simulator's hit rate for the same
load stands beside them. Seconds are those of this machine: compare rows of one table only.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import psutil
import typer
from rich.console import Console

from kvgym.backends.sglang.client import counter
from kvgym.backends.sglang.gateway import FrontRouter
from kvgym.backends.sglang.launcher import Fleet
from kvgym.config.cluster import resolve_cluster
from kvgym.errors import KVGymError
from kvgym.harness.report.console import make_console, print_table
from kvgym.harness.tools.single import run_single

ROUTERS, PEERS = ("round_robin", "lbgr"), ("cache_aware", "blend")
GROUPS, PROMPTS, PREFIX, QUESTION, OUTPUT, RATE = 24, 8, 220, 30, 4, 20.0
HEADER = ("router", "hits %", "simulated %", "P50 ms", "TTFT P50 ms", "requests/s", "router CPU ms/request")


@contextmanager
def kvgym_route(routing: str, urls: list[str], model: str) -> Iterator[tuple[str, psutil.Process | None]]:
    """Run `kvgym route`; yield its url and process."""
    workers = [part for url in urls for part in ("--worker", url)]
    command = [sys.executable, "-m", "kvgym", "route", "--routing", routing, "--listen", "127.0.0.1:0", "--json"]
    process = subprocess.Popen(
        [*command, "--tokenizer", model, *workers], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    )
    try:
        assert process.stdout is not None
        yield json.loads(process.stdout.readline())["url"], psutil.Process(process.pid)
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(20)


@contextmanager
def sglang_router(policy: str, urls: list[str], live: Any) -> Iterator[tuple[str, psutil.Process | None]]:
    """Run the real sglang-router; yield its url and process."""
    with FrontRouter(live, urls, policy) as front:
        yield front.url, psutil.Process(front.pid)


@contextmanager
def direct(urls: list[str]) -> Iterator[tuple[str, psutil.Process | None]]:
    """Yield one server alone."""
    yield urls[0], None


def counters(urls: list[str]) -> tuple[float, float]:
    """Return (cached, prompt) tokens of all servers so far."""
    pages = [urllib.request.urlopen(f"{url}/metrics", timeout=10).read().decode() for url in urls]
    return tuple(sum(counter(page, f"sglang:{name}_tokens_total") for page in pages) for name in ("cached", "prompt"))  # type: ignore[return-value]


def flush(urls: list[str]) -> None:
    """Empty the servers' caches."""
    for url in urls:
        urllib.request.urlopen(urllib.request.Request(f"{url}/flush_cache?timeout=10", b""), timeout=20).read()


def benchmark(python: str, url: str, model: str, backend: str) -> dict[str, Any]:
    """Run SGLang's bench_serving once; return its own result."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "out.jsonl"
        command = [python, "-m", "sglang.bench_serving", "--backend", backend, "--base-url", url, "--model", model]
        command += ["--dataset-name", "generated-shared-prefix", "--gsp-num-groups", str(GROUPS)]
        command += ["--gsp-prompts-per-group", str(PROMPTS), "--gsp-system-prompt-len", str(PREFIX)]
        command += ["--gsp-question-len", str(QUESTION), "--gsp-output-len", str(OUTPUT), "--request-rate", str(RATE)]
        command += ["--output-file", str(out), "--seed", "1", "--warmup-requests", "0", "--tokenizer", model]
        environment = {**os.environ, "HOME": folder, "HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1"}
        done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
        if done.returncode:
            raise KVGymError(f"bench_serving failed: {done.stderr[-1500:]}")
        return json.loads(out.read_text().splitlines()[-1])


def simulated(routing: str) -> float:
    """Return the simulator's hit rate of the same load on the same fleet."""
    fields = {"groups": GROUPS, "prompts_per_group": PROMPTS, "prefix_ratio": PREFIX / (PREFIX + QUESTION),
              "lens": [PREFIX + QUESTION], "output_tokens": OUTPUT, "rate_rps": RATE}  # fmt: skip
    found = run_single("live_small", "cpu2", routing, "lru", 1, [f"workload.{k}={v}" for k, v in fields.items()])
    return float(found["hit_rate"])


def main(
    peers: Annotated[bool, typer.Option("--peers", help="also the real sglang-router and two more policies")] = False,
    backend: Annotated[str, typer.Option(help="bench_serving's: sglang-oai or sglang")] = "sglang-oai",
    as_json: Annotated[bool, typer.Option("--json", help="print one JSON object")] = False,
) -> None:
    """Play each router once and print the table."""
    said = Console(stderr=True)
    cluster = resolve_cluster("cpu2")
    python = os.environ.get("KVGYM_LIVE_PYTHON") or str(cluster.live.python)  # type: ignore[union-attr]
    model = str(Path(python).absolute().parent.parent / "model")
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as logs, Fleet(cluster, "lru", Path(logs), said.print) as fleet:
        urls = fleet.urls
        plays: list[tuple[str, str, Any]] = [("direct, one server", "", lambda: direct(urls))]
        for name in (*ROUTERS, *(PEERS if peers else ())):
            plays.append((f"kvgym route {name}", name, lambda name=name: kvgym_route(name, urls, model)))
        if peers:
            for policy in ("round_robin", "cache_aware"):
                plays.append((f"sglang-router {policy}", policy, lambda p=policy: sglang_router(p, urls, cluster.live)))
        for title, routing, opened in plays:
            flush(urls)
            before = counters(urls)
            with opened() as (url, process):
                cpu_s = _cpu(process)
                found = benchmark(python, url, model, backend)
                cpu_s = _cpu(process) - cpu_s
            time.sleep(1.0)
            cached, prompt = (now - then for now, then in zip(counters(urls), before, strict=True))
            rows.append(
                {"router": title, "hit_rate": cached / max(prompt, 1),
                 "simulated_hit_rate": simulated(routing) if routing else None,
                 "p50_s": found["median_e2e_latency_ms"] / 1e3, "p50_ttft_s": found["median_ttft_ms"] / 1e3,
                 "requests_per_s": found["request_throughput"], "completed": found["completed"],
                 "router_cpu_s_per_request": cpu_s / max(found["completed"], 1) if process else None}
            )  # fmt: skip
            said.print(f"{title}: {found['completed']} requests", highlight=False)
    if as_json:
        print(json.dumps({"rows": rows}))
        return
    print_table(make_console(), HEADER, [_cells(row) for row in rows])


def _cpu(process: psutil.Process | None) -> float:
    if process is None:
        return 0.0
    times = process.cpu_times()
    return times.user + times.system


def _cells(row: dict[str, Any]) -> list[str]:
    simulated_hits, cpu = row["simulated_hit_rate"], row["router_cpu_s_per_request"]
    return [
        row["router"], f"{100 * row['hit_rate']:.1f}", "" if simulated_hits is None else f"{100 * simulated_hits:.1f}",
        f"{1e3 * row['p50_s']:.1f}", f"{1e3 * row['p50_ttft_s']:.1f}", f"{row['requests_per_s']:.1f}",
        "" if cpu is None else f"{1e3 * cpu:.2f}",
    ]  # fmt: skip


if __name__ == "__main__":
    typer.run(main)
