"""Measures what `kvgym route` costs: beside a bare Python pass-through and the real sglang-router, alternating.

    python scripts/bench_route.py              stub servers that stream 16 chunks; medians of 5 rounds

Latency at one connection, and requests/s at 64 connections over the router's CPU seconds, which is what a core gives.
Prompts are 2,000 random token ids (`ids`, no tokenising) or 2,000 tokens of text (`text`). The pass-through is
aiohttp's server and client and nothing else. KVGYM_LIVE_PYTHON names an interpreter with sglang-router; without it that
is left out.
"""

from __future__ import annotations

import asyncio
import json
import multiprocessing
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from statistics import median
from typing import Annotated, Any

import aiohttp
import numpy as np
import psutil
import typer
from aiohttp import web

from kvgym.backends.sglang.gateway import FrontRouter
from kvgym.config.live import LiveConfig
from kvgym.harness.report.console import make_console, print_table

CHUNKS, PROMPT_TOKENS, CONNECTIONS = 16, 2000, 64
KVGYM = ("round_robin", "cache_aware", "lbgr")


async def _stub(port: int) -> None:
    async def answer(request: web.Request) -> web.StreamResponse:
        await request.read()
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        for number in range(CHUNKS):
            await response.write(b'data: {"text": "word", "n": %d}\n\n' % number)
        await response.write(b"data: [DONE]\n\n")
        return response

    async def fine(_: web.Request) -> web.Response:
        return web.json_response({"status": "ok", "model_path": "stub", "max_total_num_tokens": 200_000})

    app = web.Application(client_max_size=1 << 26)
    app.add_routes([web.post("/{path:.*}", answer), web.get("/{path:.*}", fine)])
    await _run(app, port)


async def _pass_through(port: int, target: str) -> None:
    session = aiohttp.ClientSession(auto_decompress=False, connector=aiohttp.TCPConnector(limit=0))

    async def answer(request: web.Request) -> web.StreamResponse:
        body = await request.read()
        async with session.post(f"{target}{request.rel_url}", data=body) as upstream:
            response = web.StreamResponse(headers={"Content-Type": upstream.content_type})
            await response.prepare(request)
            while chunk := await upstream.content.readany():
                await response.write(chunk)
            await response.write_eof()
            return response

    app = web.Application(client_max_size=1 << 26)
    app.add_routes([web.post("/{path:.*}", answer)])
    await _run(app, port)


async def _run(app: web.Application, port: int) -> None:
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", port).start()
    await asyncio.Event().wait()


def _child(name: str, *arguments: Any) -> None:
    import uvloop

    signal.signal(signal.SIGINT, signal.SIG_IGN)
    uvloop.run({"stub": _stub, "pass": _pass_through}[name](*arguments))


@contextmanager
def child(name: str, port: int, *arguments: Any) -> Iterator[tuple[str, psutil.Process]]:
    """Run one of the servers above in a process of its own."""
    process = multiprocessing.get_context("spawn").Process(target=_child, args=(name, port, *arguments), daemon=True)
    process.start()
    try:
        yield f"http://127.0.0.1:{port}", psutil.Process(process.pid)
    finally:
        process.kill()
        process.join()


@contextmanager
def kvgym_route(routing: str, urls: list[str]) -> Iterator[tuple[str, psutil.Process]]:
    """Run `kvgym route`."""
    workers = [part for url in urls for part in ("--worker", url)]
    command = [sys.executable, "-m", "kvgym", "route", "--routing", routing, "--listen", "127.0.0.1:0", "--json"]
    process = subprocess.Popen([*command, *workers], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    try:
        assert process.stdout is not None
        yield json.loads(process.stdout.readline())["url"], psutil.Process(process.pid)
    finally:
        process.terminate()
        process.wait(20)


@contextmanager
def sglang_router(urls: list[str]) -> Iterator[tuple[str, psutil.Process]]:
    """Run the real sglang-router, round robin."""
    with FrontRouter(LiveConfig(urls=tuple(urls)), urls, "round_robin") as front:
        yield front.url, psutil.Process(front.pid)


def bodies(kind: str, count: int, seed: int) -> list[bytes]:
    """Return request bodies: half of each prompt is one of eight shared beginnings."""
    rng = np.random.default_rng(seed)
    half = PROMPT_TOKENS // 2
    shared = rng.integers(0, 30_000, (8, half))
    made = []
    for number in range(count):
        ids = np.concatenate((shared[number % 8], rng.integers(0, 30_000, half))).tolist()
        if kind == "ids":
            made.append(json.dumps({"input_ids": ids, "stream": True}).encode())
        else:
            made.append(json.dumps({"text": " ".join(f"w{i}" for i in ids), "stream": True}).encode())
    return made


async def _play(url: str, asked: list[bytes], connections: int) -> tuple[list[float], float]:
    """Return the latencies and the whole time of sending `asked` over so many connections."""
    latencies: list[float] = []
    waiting = iter(asked)
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:

        async def work() -> None:
            for body in waiting:
                begun = time.perf_counter()
                headers = {"Content-Type": "application/json"}
                async with session.post(f"{url}/generate", data=body, headers=headers) as answer:
                    text = await answer.read()
                    assert answer.status == 200 and text.endswith(b"[DONE]\n\n"), text[-200:]
                latencies.append(time.perf_counter() - begun)

        begun = time.perf_counter()
        await asyncio.gather(*(work() for _ in range(connections)))
        return latencies, time.perf_counter() - begun


def cpu_s(process: psutil.Process) -> float:
    """Return the CPU seconds of a process and its children so far."""
    return sum(sum(p.cpu_times()[:2]) for p in (process, *process.children(recursive=True)))


def main(
    rounds: Annotated[int, typer.Option(min=1)] = 5,
    one: Annotated[int, typer.Option(min=10, help="requests at one connection, each round")] = 100,
    many: Annotated[int, typer.Option(min=64, help="requests at 64 connections, each round")] = 1500,
    as_json: Annotated[bool, typer.Option("--json", help="print one JSON object")] = False,
) -> None:
    """Measure and print."""
    with ExitStack() as stack:
        stubs = [stack.enter_context(child("stub", port))[0] for port in (39_801, 39_802)]
        time.sleep(2.0)
        doors: dict[str, tuple[str, psutil.Process | None]] = {"direct": (stubs[0], None)}
        doors["pass-through"] = stack.enter_context(child("pass", 39_803, stubs[0]))
        for name in KVGYM:
            doors[f"kvgym {name}"] = stack.enter_context(kvgym_route(name, stubs))
        if os.environ.get("KVGYM_LIVE_PYTHON"):
            doors["sglang-router"] = stack.enter_context(sglang_router(stubs))
        time.sleep(2.0)
        rows = [row for kind in ("ids", "text") for row in _measure(doors, kind, rounds, one, many)]
    if as_json:
        print(json.dumps({"rows": rows}))
        return
    header = (
        "router",
        "prompts",
        "P50 ms, 1 connection",
        "added ms",
        "requests/s a core, 64 connections",
        "of the pass-through",
    )
    print_table(make_console(), header, [_cells(row) for row in rows], names=2)


def _measure(doors: dict[str, Any], kind: str, rounds: int, one: int, many: int) -> list[dict[str, Any]]:
    latency: dict[str, list[float]] = {name: [] for name in doors}
    core: dict[str, list[float]] = {name: [] for name in doors}
    for number in range(rounds + 1):
        for name, (url, process) in doors.items():
            latencies, _ = asyncio.run(_play(url, bodies(kind, one, number), 1))
            before = cpu_s(process) if process else 0.0
            _, whole_s = asyncio.run(_play(url, bodies(kind, many, 1000 + number), CONNECTIONS))
            used_s = cpu_s(process) - before if process else whole_s
            if number:  # the first round warms up
                latency[name].append(median(latencies))
                core[name].append(many / used_s)
    base = median(core["pass-through"])
    return [
        {"router": name, "prompts": kind, "p50_s": median(latency[name]),
         "added_s": median(latency[name]) - median(latency["direct"]),
         "rps_per_core": median(core[name]) if process else None,
         "of_pass_through": median(core[name]) / base if process else None}
        for name, (_, process) in doors.items()
    ]  # fmt: skip


def _cells(row: dict[str, Any]) -> list[str]:
    core, share = row["rps_per_core"], row["of_pass_through"]
    return [
        row["router"], row["prompts"], f"{1e3 * row['p50_s']:.2f}", f"{1e3 * row['added_s']:+.2f}",
        "" if core is None else f"{core:.0f}", "" if share is None else f"{share:.2f}",
    ]  # fmt: skip


if __name__ == "__main__":
    typer.run(main)
