"""What goes wrong between a client and its server: nothing hangs, nothing is lost or counted twice."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import aiohttp
import pytest
from aiohttp import web

pytestmark = pytest.mark.timeout(60)


def status_of(number: int, **headers: str) -> Any:
    async def behaviour(stub: Any, request: web.Request) -> web.StreamResponse:
        return web.json_response({"error": f"{stub.name} says {number}"}, status=number, headers=headers)

    return behaviour


async def begin_and_cut(request: web.Request, headers: dict[str, str], begin: bytes) -> web.StreamResponse:
    response = web.StreamResponse(headers=headers)
    await response.prepare(request)
    await response.write(begin)
    await asyncio.sleep(0.05)
    assert request.transport is not None
    request.transport.abort()
    return response


async def cut_in_the_middle(stub: Any, request: web.Request) -> web.StreamResponse:
    return await begin_and_cut(request, {"Content-Type": "text/event-stream"}, b'data: {"n": 0}\n\n')


async def cut_before(stub: Any, request: web.Request) -> web.StreamResponse:
    assert request.transport is not None
    request.transport.abort()
    return web.Response()


async def cut_body(stub: Any, request: web.Request) -> web.StreamResponse:
    return await begin_and_cut(request, {"Content-Length": "1000"}, b'{"half": ')


async def silent(stub: Any, request: web.Request) -> web.StreamResponse:
    await asyncio.sleep(60)
    return web.Response()


async def endless(stub: Any, request: web.Request) -> web.StreamResponse:
    response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
    await response.prepare(request)
    while True:
        await response.write(b"data: " + b"x" * 65_536 + b"\n\n")


async def garbage(stub: Any, request: web.Request) -> web.StreamResponse:
    assert request.transport is not None
    request.transport.write(b"HTTP/1.1 banana\r\n\r\n")  # type: ignore[attr-defined]
    await asyncio.sleep(0.1)
    return web.Response()


@pytest.mark.parametrize(
    "behaviour",
    [cut_before, garbage, *map(status_of, (429, 500, 502, 503, 504))],
    ids=lambda b: getattr(b, "__name__", ""),
)
def test_before_the_first_byte__another_server_answers(bench: Any, behaviour: Any) -> None:
    async def scenario() -> None:
        bad, good = bench.stub("bad", behaviour), bench.stub("good")
        async with bench.routed([bad, good], break_after=100) as router:
            for _ in range(6):
                status, body = await router.chat()
                assert status == 200
                assert json.loads(body)["server"] == "good"
            assert len(good.seen) == 6
            assert await router.inflight() == 0
            page = await router.get("/metrics")
            assert f'kvgym_requests_total{{status="200",worker="{good.url}"}} 6.0' in page

    asyncio.run(scenario())


def test_everybody_refuses__the_client_sees_the_servers_own_answer(bench: Any) -> None:
    async def scenario() -> None:
        stubs = [bench.stub(name, status_of(429, **{"Retry-After": "1"})) for name in "ab"]
        async with bench.routed(stubs) as router:
            async with router.session.post(f"{router.url}/v1/completions", json={"prompt": "x"}) as answer:
                assert answer.status == 429
                assert answer.headers["Retry-After"] == "1"
                assert "says 429" in (await answer.json())["error"]
            assert sum(len(stub.seen) for stub in stubs) == 3  # two retries
            assert await router.inflight() == 0

    asyncio.run(scenario())


def test_a_clients_mistake__is_not_tried_elsewhere(bench: Any) -> None:
    async def scenario() -> None:
        stubs = [bench.stub("a", status_of(400)), bench.stub("b")]
        async with bench.routed(stubs) as router:
            assert (await router.chat())[0] == 400
            assert not stubs[1].seen

    asyncio.run(scenario())


def test_after_the_first_byte__the_stream_ends_with_an_error(bench: Any) -> None:
    async def scenario() -> None:
        stubs = [bench.stub("a", cut_in_the_middle), bench.stub("b")]
        async with bench.routed(stubs) as router:
            status, body = await router.chat(stream=True)
            assert status == 200
            first, error, rest = body.decode().split("\n\n")
            assert first == 'data: {"n": 0}'
            assert json.loads(error.removeprefix("data: "))["error"]["code"] == 502
            assert rest == ""
            assert not stubs[1].seen  # it is never sent twice
            assert await router.inflight() == 0

    asyncio.run(scenario())


def test_half_a_body__breaks_the_clients_connection(bench: Any) -> None:
    async def scenario() -> None:
        async with bench.routed([bench.stub("a", cut_body)]) as router:
            with pytest.raises(aiohttp.ClientError):
                await router.chat()
            assert await router.inflight() == 0

    asyncio.run(scenario())


def test_a_dead_server__is_left_out_and_comes_back(bench: Any) -> None:
    async def scenario() -> None:
        a, b = bench.stub("a"), bench.stub("b")
        async with bench.routed([a, b]) as router:
            await a.stop()
            for _ in range(4):
                assert json.loads((await router.chat())[1])["server"] == "b"
            await router.until(lambda: state(router, 0, "down"))
            await a.start()
            await router.until(lambda: state(router, 0, "up"))
            servers = {json.loads((await router.chat())[1])["server"] for _ in range(4)}
            assert servers == {"a", "b"}

    asyncio.run(scenario())


async def state(router: Any, place: int, wanted: str) -> bool:
    return (await router.get("/workers"))["workers"][place]["state"] == wanted


def test_nobody_up__is_said_soon_and_a_late_server_is_waited_for(bench: Any) -> None:
    async def scenario() -> None:
        stub = bench.stub("a")
        async with bench.routed([stub], wait_s=0.5) as router:
            await stub.stop()
            await router.until(lambda: state(router, 0, "down"))
            status, body = await router.chat()
            assert status == 503
            assert json.loads(body)["error"]["message"] == "no server is up"
            waiting = asyncio.create_task(router.chat())
            await asyncio.sleep(0.1)
            await stub.start()
            assert (await waiting)[0] == 200

    asyncio.run(scenario())


def test_silence__counts_as_lost(bench: Any) -> None:
    async def scenario() -> None:
        async with bench.routed([bench.stub("a", silent), bench.stub("b")], stall_timeout_s=0.3) as router:
            assert json.loads((await router.chat())[1])["server"] == "b"

    asyncio.run(scenario())


def test_failures_in_a_row__let_a_server_rest(bench: Any) -> None:
    async def scenario() -> None:
        a, b = bench.stub("a", status_of(500)), bench.stub("b")
        async with bench.routed([a, b], break_after=2, break_s=30.0) as router:
            for _ in range(10):
                assert (await router.chat())[0] == 200
            assert len(a.seen) == 2
            assert await state(router, 0, "resting")

    asyncio.run(scenario())


@pytest.mark.parametrize("phase", ["prefill", "stream"])
def test_client_gone__the_server_is_told_at_once(bench: Any, phase: str) -> None:
    async def slow(stub: Any, request: web.Request) -> web.StreamResponse:
        if phase == "prefill":
            await asyncio.sleep(30)
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        for _ in range(300):
            await response.write(b"data: {}\n\n")
            await asyncio.sleep(0.05)
        return response

    async def scenario() -> None:
        stub = bench.stub("a", slow)
        async with bench.routed([stub]) as router:
            task = asyncio.create_task(router.chat(stream=True))
            await router.until(lambda: seen(stub))
            await asyncio.sleep(0.2)
            task.cancel()
            await router.until(lambda: aborted(stub), seconds=2.0)
            await router.until(lambda: nobody(router))
            assert "kvgym_clients_gone_total 1.0" in await router.get("/metrics")

    async def seen(stub: Any) -> bool:
        return bool(stub.seen)

    async def aborted(stub: Any) -> bool:
        return stub.aborted == 1

    async def nobody(router: Any) -> bool:
        return await router.inflight() == 0

    asyncio.run(scenario())


def test_an_endless_answer__ends_at_the_limit(bench: Any) -> None:
    async def scenario() -> None:
        async with bench.routed([bench.stub("a", endless)], most_answer_mb=2.0) as router:
            status, body = await router.chat(stream=True)
            assert status == 200
            assert len(body) < 3 << 20
            assert b'"code": 502' in body[-300:]

    asyncio.run(scenario())


def test_a_slow_reader__holds_the_server_back(bench: Any) -> None:
    """What a client doesn't read must not pile up in the router: the server's writes have to wait."""
    written = [0]

    async def floods(stub: Any, request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        for _ in range(640):
            await response.write(b"data: " + b"x" * 65_528 + b"\n\n")
            written[0] += 65_536
        return response

    async def scenario() -> None:
        async with bench.routed([bench.stub("a", floods)]) as router:
            reader, writer = await asyncio.open_connection("127.0.0.1", int(router.url.rpartition(":")[2]), limit=1024)
            body = b'{"prompt": "x", "stream": true}'
            head = b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % len(body)
            writer.write(head + body)
            await reader.read(10)
            await asyncio.sleep(1.0)
            assert written[0] < 24 << 20  # socket buffers, not the whole 40 MB
            writer.close()
            await router.until(lambda: nobody(router))

    async def nobody(router: Any) -> bool:
        return await router.inflight() == 0

    asyncio.run(scenario())


@pytest.mark.parametrize(
    "head",
    [
        b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\nContent-Length: 50\r\n\r\nhello",
        b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: +5\r\n\r\nhello",
        b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nX-A: b\nX-B: c\r\nBad Header: 1\r\nContent-Length: 0\r\n\r\n",
        b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nX-Long: " + b"a" * 40_000 + b"\r\nContent-Length: 0\r\n\r\n",
        b"nonsense\r\n\r\n",
    ],
)
def test_smuggling__is_refused_and_reaches_no_server(bench: Any, head: bytes) -> None:
    async def scenario() -> None:
        stub = bench.stub("a")
        async with bench.routed([stub]) as router:
            reader, writer = await asyncio.open_connection("127.0.0.1", int(router.url.rpartition(":")[2]))
            writer.write(head)
            answer = await asyncio.wait_for(reader.read(4096), 5)
            assert answer.startswith((b"HTTP/1.1 400", b"HTTP/1.0 400"))
            assert not stub.seen
            writer.close()
            assert (await router.chat())[0] == 200

    asyncio.run(scenario())
