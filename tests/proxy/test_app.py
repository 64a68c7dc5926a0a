"""The router between a client and stub servers: what passes, what is refused, what is counted."""

from __future__ import annotations

import asyncio
import contextlib
import io
import json
from pathlib import Path
from typing import Any

import aiohttp
import numpy as np
import pytest

from kvgym.errors import ConfigError
from kvgym.harness.tools.single import run_single

pytestmark = pytest.mark.timeout(60)


def test_answers__pass_byte_for_byte_streamed_and_not(bench: Any) -> None:
    async def scenario() -> None:
        stubs = [bench.stub("a"), bench.stub("b")]
        async with bench.routed(stubs) as router:
            status, body = await router.chat("hi", temperature=0.5, unknown={"x": [1]})
            assert status == 200
            data = json.loads(body)
            assert data["server"] == "a"
            assert data["echo"]["unknown"] == {"x": [1]}
            status, body = await router.chat("hi", stream=True)
            events = body.decode().split("\n\n")
            assert events[0] == 'data: {"server": "b", "n": 0}'
            assert events[-2] == "data: [DONE]"
            assert await router.inflight() == 0

    asyncio.run(scenario())


def test_stream__the_first_byte_comes_before_the_last(bench: Any) -> None:
    async def scenario() -> None:
        stub = bench.stub("a")
        stub.pause_s = 0.1
        async with bench.routed([stub]) as router:
            loop, data = asyncio.get_running_loop(), {"prompt": "x", "stream": True}
            begun = loop.time()
            async with router.session.post(f"{router.url}/v1/completions", json=data) as answer:
                await answer.content.readany()
                first = loop.time() - begun
                await answer.read()
                assert first < 0.15 < 0.35 < loop.time() - begun

    asyncio.run(scenario())


@pytest.mark.parametrize(
    "path", ["/v1/chat/completions", "/v1/completions", "/v1/responses", "/v1/messages", "/generate"]
)
def test_endpoints__are_routed_by_prompt(bench: Any, path: str) -> None:
    """Two prompts with their own prefix each: cache_aware_014 sends all of each to one server."""
    bodies = {
        "/v1/chat/completions": lambda t: {"messages": [{"role": "user", "content": t}]},
        "/v1/messages": lambda t: {"messages": [{"role": "user", "content": t}], "max_tokens": 5},
        "/v1/completions": lambda t: {"prompt": t},
        "/v1/responses": lambda t: {"input": t, "instructions": t},
        "/generate": lambda t: {"input_ids": [ord(c) for c in t], "sampling_params": {"max_new_tokens": 3}},
    }

    async def scenario() -> None:
        stubs = [bench.stub("a"), bench.stub("b")]
        async with bench.routed(stubs, routing="cache_aware_014") as router:
            servers = []
            for name in ("one ", "two ", "one ", "two ", "one "):
                status, answer = await router.post(path, bodies[path](name * 200))
                assert status == 200
                servers.append(answer["server"])
            assert servers[0] == servers[2] == servers[4]
            assert servers[1] == servers[3] != servers[0]

    asyncio.run(scenario())


def test_passed_through__models_and_embeddings(bench: Any) -> None:
    async def scenario() -> None:
        async with bench.routed([bench.stub("a")]) as router:
            assert (await router.get("/v1/models"))["data"] == [{"id": "stub"}]
            assert (await router.post("/v1/embeddings", {"input": "x"}))[1]["echo"] == {"input": "x"}
            async with router.session.get(f"{router.url}/nothing") as answer:
                assert answer.status == 404
                assert (await answer.json())["error"]["code"] == 404

    asyncio.run(scenario())


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b"{", "no JSON"),
        (b"\xff\xfe", "no JSON"),
        (b"[1]", "must be a JSON object, got list"),
        (b"[" * 100_000, "no JSON"),
        (b"{}", "input_ids|messages|prompt"),
        (b'{"messages": []}', "messages|prompt"),
        (b'{"messages": [{"content": "x"}]}', "role"),
        (b'{"input_ids": [1, "x"]}', "token ids"),
    ],
)
def test_bad_bodies__are_refused_with_a_reason(bench: Any, body: bytes, message: str) -> None:
    async def scenario() -> None:
        async with bench.routed([bench.stub("a")]) as router:
            async with router.session.post(f"{router.url}/v1/chat/completions", data=body) as answer:
                assert answer.status == 400
                text = (await answer.json())["error"]["message"]
            assert any(part in text for part in message.split("|"))
            assert not router.stubs[0].seen
            assert (await router.chat())[0] == 200

    asyncio.run(scenario())


def test_long_bodies__are_refused_and_long_prompts_pass(bench: Any) -> None:
    async def scenario() -> None:
        async with bench.routed([bench.stub("a")], most_body_mb=8.0) as router:
            data = io.BytesIO(json.dumps({"text": "x" * (9 << 20)}).encode())
            async with router.session.post(f"{router.url}/generate", data=data) as answer:
                assert answer.status == 413
                assert "the limit is 8 MB" in (await answer.json())["error"]["message"]
            data = io.BytesIO(json.dumps({"input_ids": [7] * 1_000_000}).encode())
            async with router.session.post(f"{router.url}/generate", data=data) as answer:
                assert answer.status == 200

    asyncio.run(scenario())


def test_keys__both_ways_and_never_passed_on(bench: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KVGYM_TEST_OUTER", "outer-key")
    monkeypatch.setenv("KVGYM_TEST_INNER", "inner-key")
    keys = {"api_key_variable": "KVGYM_TEST_OUTER", "worker_key_variable": "KVGYM_TEST_INNER"}

    async def scenario() -> None:
        async with bench.routed([bench.stub("a")], **keys) as router:
            assert (await router.chat())[0] == 401
            url, data = f"{router.url}/v1/completions", {"prompt": "x"}
            for given in ("wrong", "outer-key2", "outer-ke", "ünïcode"):
                async with router.session.post(url, json=data, headers={"Authorization": f"Bearer {given}"}) as answer:
                    assert answer.status == 401
            async with router.session.post(url, json=data, headers={"Authorization": "Bearer outer-key"}) as answer:
                assert answer.status == 200
            assert router.stubs[0].headers[-1]["Authorization"] == "Bearer inner-key"
            assert await router.get("/health") == {"status": "ok"}
            assert not any("key" in line for line in router.told)

    asyncio.run(scenario())


def test_key__of_the_client_passes_where_the_router_has_none(bench: Any) -> None:
    async def scenario() -> None:
        async with bench.routed([bench.stub("a")]) as router:
            headers = {"Authorization": "Bearer mine", "X-Trace": "7", "Connection": "close, X-Drop", "X-Drop": "1"}
            async with router.session.post(f"{router.url}/v1/completions", json={"prompt": "x"}, headers=headers):
                pass
            seen = router.stubs[0].headers[-1]
            assert seen["Authorization"] == "Bearer mine"
            assert seen["X-Trace"] == "7"
            assert "X-Drop" not in seen

    asyncio.run(scenario())


def test_workers__come_drain_and_go(bench: Any) -> None:
    async def scenario() -> None:
        a, b, c = (bench.stub(name) for name in "abc")
        await c.start()
        async with bench.routed([a, b], routing="cache_aware") as router:
            await router.chat("first")
            status, listed = await router.post("/workers", {"action": "add", "url": c.url})
            assert status == 200
            assert [row["state"] for row in listed["workers"]] == ["up"] * 3
            assert (await router.post("/workers", {"action": "add", "url": c.url}))[1]["error"]["code"] == 400
            await router.post("/workers", {"action": "drain", "url": a.url})
            await router.post("/workers", {"action": "remove", "url": b.url})
            for number in range(4):
                assert json.loads((await router.chat(f"text {number}"))[1])["server"] == "c"
            assert [row["state"] for row in (await router.get("/workers"))["workers"]] == ["draining", "up"]
            await router.post("/workers", {"action": "add", "url": b.url})
            await router.post("/workers", {"action": "drain", "url": c.url})
            assert json.loads((await router.chat("again"))[1])["server"] == "b"
            for bad in ({"action": "stop"}, {"action": "drain", "url": "http://127.0.0.1:9"}, [1]):
                assert (await router.post("/workers", bad))[0] == 400
        await c.stop()

    asyncio.run(scenario())


def test_metrics__count_requests_hits_and_shadows(bench: Any) -> None:
    async def scenario() -> None:
        async with bench.routed(
            [bench.stub("a"), bench.stub("b")], shadows=["shortest_queue", "round_robin"]
        ) as router:
            for _ in range(6):
                await router.chat("the same text " * 20)
            page = await router.get("/metrics")
            assert f'kvgym_requests_total{{status="200",worker="{router.stubs[0].url}"}} 3.0' in page
            assert "kvgym_cached_tokens_total 30.0" in page
            assert 'kvgym_shadow_decisions_total{shadow="round_robin"} 6.0' in page
            assert 'kvgym_shadow_agreements_total{shadow="round_robin"} 6.0' in page
            assert "kvgym_latency_seconds_count 6.0" in page
            again = await router.get("/metrics")
            assert 'kvgym_shadow_decisions_total{shadow="round_robin"} 6.0' in again

    asyncio.run(scenario())


@pytest.mark.parametrize("content", ["hashes", "ids"])
def test_log__is_a_workload_and_holds_no_text(bench: Any, tmp_path: Path, content: str) -> None:
    async def scenario() -> None:
        async with bench.routed([bench.stub("a")], log=str(tmp_path / "log.jsonl"), log_content=content) as router:
            for number in range(12):
                await router.chat(f"a secret beginning of some length {'x ' * 80} and end {number % 3}", session_id="s")

    asyncio.run(scenario())
    text = (tmp_path / "log.jsonl").read_text()
    assert "secret" not in text
    rows = [json.loads(line) for line in text.splitlines()]
    assert len(rows) == 12
    assert {row["route"]["status"] for row in rows} == {200}
    assert all(row["route"]["cached_tokens"] == 5 for row in rows)
    if content == "hashes":
        assert rows[0]["hash_ids"] == rows[3]["hash_ids"] != rows[1]["hash_ids"]
        assert rows[0]["hash_ids"][:3] == rows[1]["hash_ids"][:3]
        fields = [f"workload.path={tmp_path / 'log.jsonl'}", "workload.block_size=16", "workload.tick_s=0"]
        (tmp_path / "w.yaml").write_text(
            f"source: mooncake\npath: {tmp_path / 'log.jsonl'}\nblock_size: 16\ntick_s: 0\n"
        )
        found = run_single(str(tmp_path / "w.yaml"), "l40x4", "cache_aware", "lru", 0, fields)
        assert found["completed"] == 12
        assert found["hit_rate"] > 0.5


def test_text_and_ids__without_tokenizer_equal_beginnings_match(bench: Any) -> None:
    async def scenario() -> None:
        async with bench.routed([bench.stub("a"), bench.stub("b")], routing="cache_aware") as router:
            long = "word " * 300
            first = json.loads((await router.chat(long + "one"))[1])["server"]
            await router.chat("something else altogether")
            for number in range(3):
                assert json.loads((await router.chat(f"{long}{number}"))[1])["server"] == first

    asyncio.run(scenario())


def test_stop__lets_requests_finish_and_takes_no_more(bench: Any) -> None:
    async def scenario() -> None:
        stub = bench.stub("a")
        stub.pause_s = 0.1
        async with bench.routed([stub]) as router:
            running = asyncio.create_task(router.chat(stream=True))
            await router.until(lambda: _seen(stub, 1))
            router.stop.set()
            await asyncio.sleep(0.05)
            status, body = await running
            assert status == 200
            assert body.endswith(b"data: [DONE]\n\n")
            with contextlib.suppress(aiohttp.ClientError):
                async with router.session.post(f"{router.url}/v1/completions", json={"prompt": "x"}) as answer:
                    assert answer.status == 503
            assert len(stub.seen) == 1

    async def _seen(stub: Any, count: int) -> bool:
        return len(stub.seen) >= count

    asyncio.run(scenario())


def test_tls__with_a_certificate(bench: Any, tmp_path: Path) -> None:
    import subprocess

    made = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=127.0.0.1"]
    try:
        subprocess.run(
            [*made, "-keyout", tmp_path / "k.pem", "-out", tmp_path / "c.pem"], check=True, capture_output=True
        )
    except FileNotFoundError:
        pytest.skip("no openssl to make a certificate with")

    async def scenario() -> None:
        tls = {"tls_certificate": str(tmp_path / "c.pem"), "tls_key": str(tmp_path / "k.pem")}
        async with bench.routed([bench.stub("a")], **tls) as router:
            assert router.url.startswith("https://")
            assert (await router.chat())[0] == 200
        with pytest.raises(ConfigError, match="cannot use"):
            async with bench.routed(
                [bench.stub("a")], tls_certificate=str(tmp_path / "k.pem"), tls_key=str(tmp_path / "c.pem")
            ):
                pass

    asyncio.run(scenario())


def test_random_ids__many_at_once_all_come_back(bench: Any) -> None:
    """1,000 clients at once, LBGR: every one gets its own answer, and the books are empty afterwards."""

    async def scenario() -> None:
        stubs = [bench.stub(name) for name in "abc"]
        async with bench.routed(stubs, routing="lbgr") as router:
            rng = np.random.default_rng(0)

            async def one(number: int) -> int:
                ids = [number % 7] * 50 + rng.integers(0, 100, 50).tolist()
                status, answer = await router.post("/generate", {"input_ids": ids, "tag": number})
                assert status == 200
                return answer["echo"]["tag"]

            assert await asyncio.gather(*map(one, range(1000))) == list(range(1000))
            assert await router.inflight() == 0
            assert sum(len(stub.seen) for stub in stubs) == 1000

    asyncio.run(scenario())
