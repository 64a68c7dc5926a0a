"""Servers that answer what no SGLang does: the attempt is lost, the error names the server; polls are never held up."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from aiohttp import web

from kvgym.backends.sglang.channel import Channel
from kvgym.backends.sglang.client import ANSWERED, LOST, Answer, generate, open_session
from kvgym.config.live import LiveConfig

GOOD = {"output_ids": [7], "meta_info": {"cached_tokens": 3, "prompt_tokens": 4, "finish_reason": {"type": "length"}}}

LOAD = {"num_running_reqs": 1, "num_waiting_reqs": 0, "num_used_tokens": 5}


@asynccontextmanager
async def serve(event: Any, pause_s: float = 0.0, load: Any = None) -> AsyncIterator[str]:
    """Answer every generation with one event after a pause, and polls with `load`; yield the address."""

    async def answer(request: web.Request) -> web.Response:
        await asyncio.sleep(pause_s)
        return web.Response(text=f"data: {json.dumps(event)}\n\ndata: [DONE]\n\n")

    async def loads(request: web.Request) -> web.Response:
        return web.json_response({"loads": [load]})

    app = web.Application()
    app.router.add_post("/generate", answer)
    app.router.add_get("/v1/loads", loads)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


def ask(event: Any) -> Answer:
    async def once() -> Answer:
        async with serve(event) as url, open_session(LiveConfig(urls=(url,)), "", 0) as session:
            return await generate(session, url, {}, Answer(0, 0, "", 0.0), lambda: None)

    return asyncio.run(once())


@pytest.mark.parametrize(
    "event",
    [
        [],
        5,
        None,
        {"output_ids": [7], "meta_info": [1]},
        GOOD | {"output_ids": None},
        GOOD | {"meta_info": GOOD["meta_info"] | {"cached_tokens": None}},
        GOOD | {"meta_info": {"finish_reason": {"type": "length"}}},
        GOOD | {"meta_info": GOOD["meta_info"] | {"finish_reason": "length"}},
    ],
)
def test_generate__an_answer_unlike_sglangs_is_lost(event: Any) -> None:
    answer = ask(event)
    assert answer.outcome == LOST
    assert "http://127.0.0.1" in answer.error


def test_generate__a_good_answer() -> None:
    answer = ask(GOOD)
    assert (answer.outcome, answer.output_ids, answer.cached_tokens) == (ANSWERED, [7], 3)


def failed_polls(load: Any) -> list[int]:
    """Return how many polls had failed in a row, looked at for some time; a generation takes the only connection."""
    polled = []

    async def run() -> None:
        async with serve(GOOD, 1.0, load) as url:
            live = LiveConfig(urls=(url,), connections=1, poll_s=0.05, poll_timeout_s=0.3)
            channel = await asyncio.to_thread(Channel, live, [url], "")
            channel.send(0, 0, {})
            end = time.monotonic() + 0.8
            while time.monotonic() < end:
                polled.append(channel.health[0].failed_polls)
                await asyncio.sleep(0.05)
            assert not any(task.done() for task in channel._polls)
            await asyncio.to_thread(channel.close)

    asyncio.run(run())
    return polled


def test_polls__are_not_held_up_by_generations() -> None:
    assert max(failed_polls(LOAD)) == 0


@pytest.mark.parametrize("load", [{}, LOAD | {"num_used_tokens": None}, 5])
def test_polls__that_say_nothing_count_as_failed_and_go_on(load: Any) -> None:
    assert max(failed_polls(load)) >= 3
