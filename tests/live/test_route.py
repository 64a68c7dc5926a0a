"""`kvgym route` in front of real SGLang servers: the OpenAI client and bench_serving work through it unchanged."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kvgym.backends.sglang import pool

pytestmark = [pytest.mark.live, pytest.mark.slow, pytest.mark.timeout(600)]

CLIENT = """
import sys
from openai import OpenAI
client = OpenAI(base_url=sys.argv[1] + "/v1", api_key="right")
assert [model.id for model in client.models.list().data]
ask = {"model": "m", "messages": [{"role": "user", "content": "hello there"}], "max_tokens": 5}
plain = client.chat.completions.create(**ask)
assert plain.choices[0].message.content and plain.usage.completion_tokens >= 1
chunks = list(client.chat.completions.create(**ask, stream=True, stream_options={"include_usage": True}))
assert len(chunks) > 2 and chunks[-1].usage.prompt_tokens == plain.usage.prompt_tokens
assert client.completions.create(model="m", prompt="one two three", max_tokens=4).choices[0].text
assert len(list(client.completions.create(model="m", prompt="one", max_tokens=4, stream=True))) > 1
"""


@pytest.fixture(scope="module")
def servers(make_cluster: Any) -> list[Any]:
    """Two servers, those of the other tests where they fit."""
    return list(pool.acquire(make_cluster(workers=2), "lru"))


@pytest.fixture(scope="module")
def router(
    servers: list[Any], live_python: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[str, Path]]:
    """A router with LBGR, its url and its request log."""
    log = tmp_path_factory.mktemp("route") / "log.jsonl"
    workers = [part for server in servers for part in ("--worker", server.url)]
    command = [sys.executable, "-m", "kvgym", "route", "--routing", "lbgr", "--listen", "127.0.0.1:0", "--json"]
    command += ["--tokenizer", str(live_python.parent.parent / "model"), "--log", str(log), "--shadow", "cache_aware"]
    process = subprocess.Popen([*command, *workers], stdout=subprocess.PIPE)
    assert process.stdout is not None
    yield json.loads(process.stdout.readline())["url"], log
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=30)
    assert process.returncode == 0


def test_openai_client__works_unchanged(router: tuple[str, Path], live_python: Path) -> None:
    done = subprocess.run([live_python, "-c", CLIENT, router[0]], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("backend", ["sglang", "sglang-oai", "sglang-oai-chat"])
def test_bench_serving__works_unchanged(
    router: tuple[str, Path], live_python: Path, tmp_path: Path, backend: str
) -> None:
    model = str(live_python.parent.parent / "model")
    command = [live_python, "-m", "sglang.bench_serving", "--backend", backend, "--base-url", router[0]]
    command += ["--model", model, "--tokenizer", model, "--dataset-name", "generated-shared-prefix", "--seed", "3"]
    command += ["--gsp-num-groups", "4", "--gsp-prompts-per-group", "4", "--gsp-system-prompt-len", "100"]
    command += ["--gsp-question-len", "20", "--gsp-output-len", "4", "--request-rate", "20", "--warmup-requests", "0"]
    command += ["--output-file", str(tmp_path / "out.jsonl")]
    environment = {**os.environ, "HOME": str(tmp_path), "HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1"}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    found = json.loads((tmp_path / "out.jsonl").read_text().splitlines()[-1])
    assert found["completed"] == 16
    rows = [json.loads(line) for line in router[1].read_text().splitlines()]
    assert {row["route"]["status"] for row in rows} == {200}
    assert len({row["route"]["worker"] for row in rows}) == 2


def test_books__what_the_servers_counted_is_what_the_router_reports(router: tuple[str, Path]) -> None:
    ids = list(range(5, 305))
    for end in ([7, 8], [9, 10], [11, 12]):
        body = json.dumps({"input_ids": ids + end, "sampling_params": {"max_new_tokens": 2, "ignore_eos": True}})
        request = urllib.request.Request(f"{router[0]}/generate", body.encode(), {"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=60) as answer:
            meta = json.load(answer)["meta_info"]
    row = json.loads(router[1].read_text().splitlines()[-1])
    assert row["input_length"] == meta["prompt_tokens"] == 302
    assert row["route"]["cached_tokens"] == meta["cached_tokens"] == row["route"]["believed_tokens"] == 300
    page = urllib.request.urlopen(f"{router[0]}/metrics", timeout=10).read().decode()
    assert "kvgym_inflight" in page
    assert 'kvgym_shadow_decisions_total{shadow="cache_aware"}' in page
