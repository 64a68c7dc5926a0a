"""A router in front of stub servers, all in one event loop: what a server does is set per test."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import pytest
from aiohttp import web

from kvgym.config.options import build
from kvgym.config.route import RouteConfig
from kvgym.proxy.service import run

Behaviour = Callable[["Stub", web.Request], Awaitable[web.StreamResponse]]


async def answers(stub: Stub, request: web.Request) -> web.StreamResponse:
    """Answer as an OpenAI-compatible server does, streamed or not."""
    data = await request.json()
    usage = {"prompt_tokens": 9, "completion_tokens": 4, "prompt_tokens_details": {"cached_tokens": 5}}
    if not data.get("stream"):
        return web.json_response({"server": stub.name, "usage": usage, "echo": data})
    response = web.StreamResponse(headers={"Content-Type": "text/event-stream", "X-Server": stub.name})
    await response.prepare(request)
    for number in range(stub.chunks):
        await response.write(f'data: {{"server": "{stub.name}", "n": {number}}}\n\n'.encode())
        await asyncio.sleep(stub.pause_s)
    await response.write(f"data: {json.dumps({'usage': usage})}\n\ndata: [DONE]\n\n".encode())
    return response


class Stub:
    """One server: `behaviour` answers what is routed; `aborted` counts clients that left."""

    def __init__(self, name: str, behaviour: Behaviour = answers) -> None:
        self.name, self.behaviour = name, behaviour
        self.chunks, self.pause_s = 4, 0.0
        self.healthy = True
        self.seen: list[dict[str, Any]] = []
        self.headers: list[dict[str, str]] = []
        self.aborted = 0
        self.runner: web.AppRunner | None = None
        self.port = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    async def start(self) -> None:
        app = web.Application(client_max_size=64 << 20)
        app.add_routes(
            [web.get("/health", self._health), web.get("/v1/models", self._models), web.post("/{path:.*}", self._all)]
        )
        self.runner = web.AppRunner(app, handler_cancellation=True)
        await self.runner.setup()
        site = web.TCPSite(self.runner, "127.0.0.1", self.port, reuse_address=True)
        await site.start()
        self.port = self.runner.addresses[0][1]

    async def stop(self) -> None:
        if self.runner is not None:
            await self.runner.cleanup()
            self.runner = None

    async def _health(self, _: web.Request) -> web.Response:
        return web.Response(status=200 if self.healthy else 503)

    async def _models(self, _: web.Request) -> web.Response:
        return web.json_response({"data": [{"id": "stub"}], "server": self.name})

    async def _all(self, request: web.Request) -> web.StreamResponse:
        self.headers.append(dict(request.headers))
        try:
            body = await request.read()
            self.seen.append(json.loads(body))
            return await self.behaviour(self, request)
        except asyncio.CancelledError:
            self.aborted += 1
            raise


class Routed:
    """A running router and a client of it."""

    def __init__(
        self, url: str, session: aiohttp.ClientSession, stubs: list[Stub], stop: asyncio.Event, told: list[str]
    ) -> None:
        self.url, self.session, self.stubs, self.stop, self.told = url, session, stubs, stop, told

    async def chat(self, text: str = "hello", **more: Any) -> tuple[int, bytes]:
        data = {"model": "m", "messages": [{"role": "user", "content": text}], **more}
        async with self.session.post(f"{self.url}/v1/chat/completions", json=data) as answer:
            return answer.status, await answer.read()

    async def get(self, path: str) -> Any:
        async with self.session.get(f"{self.url}{path}") as answer:
            return await (answer.json() if answer.content_type == "application/json" else answer.text())

    async def post(self, path: str, data: Any) -> tuple[int, Any]:
        async with self.session.post(f"{self.url}{path}", json=data) as answer:
            return answer.status, await answer.json()

    async def inflight(self) -> int:
        return sum(row["inflight"] for row in (await self.get("/workers"))["workers"])

    async def until(self, condition: Callable[[], Awaitable[bool]], seconds: float = 5.0) -> None:
        for _ in range(int(seconds / 0.02)):
            if await condition():
                return
            await asyncio.sleep(0.02)
        raise AssertionError("it did not come to that")


@asynccontextmanager
async def routed(stubs: list[Stub], **settings: Any) -> AsyncIterator[Routed]:
    for stub in stubs:
        await stub.start()
    base = {
        "routing": "round_robin",
        "listen": "127.0.0.1:0",
        "poll_s": 0.05,
        "grace_s": 2.0,
        "break_s": 0.2,
        "wait_s": 0.5,
    }
    config = build(RouteConfig, {**base, "workers": [stub.url for stub in stubs], **settings}, "route")
    stop, told, ready = asyncio.Event(), [], []
    task = asyncio.create_task(run(config, lambda: list(config.workers), told.append, ready.append, stop))
    try:
        while not ready and not task.done():
            await asyncio.sleep(0.01)
        if task.done():
            task.result()
        url = ready[0]["url"]
        async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0, ssl=False)) as session:
            yield Routed(url, session, stubs, stop, told)
    finally:
        stop.set()
        await asyncio.wait([task])
        for stub in stubs:
            await stub.stop()


@pytest.fixture
def bench() -> Any:
    """Return the helpers of this file: test modules can't import a conftest."""

    class Tools:
        stub = Stub
        routed = staticmethod(routed)
        answers = staticmethod(answers)

    return Tools
