"""`kvgym route` as a process: signals, a file that changes, several processes behind one port."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import sys
import threading
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from subprocess import PIPE, Popen, run
from typing import Any

import pytest

pytestmark = [pytest.mark.timeout(90), pytest.mark.slow]
ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def stubs(bench: Any) -> Iterator[list[Any]]:
    """Two stub servers in a loop of their own thread."""
    made, loop = [bench.stub("a"), bench.stub("b")], asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    for stub in made:
        asyncio.run_coroutine_threadsafe(stub.start(), loop).result(10)
    yield made
    for stub in made:
        asyncio.run_coroutine_threadsafe(stub.stop(), loop).result(10)
    loop.call_soon_threadsafe(loop.stop)
    thread.join(10)
    loop.close()


def start(*arguments: str) -> tuple[Popen[str], str]:
    """Start `kvgym route`; return it and the line that says where it listens."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    process = Popen([sys.executable, "-m", "kvgym", "route", *arguments], stderr=PIPE, text=True, env=environment)
    assert process.stderr is not None
    line = ""
    while " workers up" not in line:
        line = process.stderr.readline()
        assert line or process.poll() is None, "it ended before it listened"
    return process, line


def ask(url: str, path: str = "/v1/completions", data: Any = None) -> Any:
    body = json.dumps(data if data is not None else {"prompt": "x"}).encode()
    with urllib.request.urlopen(urllib.request.Request(url + path, body), timeout=20) as answer:
        return json.load(answer)


def where(line: str) -> str:
    return line.split(" on ")[1].split(",")[0]


def test_sigterm__ends_it_with_code_0_and_sighup_reads_the_workers_anew(stubs: list[Any], tmp_path: Path) -> None:
    path = tmp_path / "route.yaml"
    path.write_text(f"workers: [{stubs[0].url}]\nrouting: round_robin\nlisten: 127.0.0.1:0\npoll_s: 0.1\n")
    process, line = start(str(path))
    try:
        url = where(line)
        assert {ask(url)["server"] for _ in range(4)} == {"a"}
        path.write_text(f"workers: [{stubs[1].url}]\n")
        process.send_signal(signal.SIGHUP)
        end = time.monotonic() + 10
        while ask(url)["server"] != "b":
            assert time.monotonic() < end
            time.sleep(0.05)
        path.write_text("workers: nonsense\n")
        process.send_signal(signal.SIGHUP)
        assert {ask(url)["server"] for _ in range(4)} == {"b"}
    finally:
        process.send_signal(signal.SIGTERM)
        errors = process.communicate(timeout=20)[1]
        assert process.returncode == 0
    assert "SIGHUP changed nothing" in errors


def test_processes__share_a_port_and_end_together(stubs: list[Any]) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    workers = [part for stub in stubs for part in ("--worker", stub.url)]
    process, _ = start(*workers, "--routing", "random", "--listen", f"127.0.0.1:{port}", "--set", "processes=2")
    try:
        assert {ask(f"http://127.0.0.1:{port}")["server"] for _ in range(30)} == {"a", "b"}
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
        assert len(children) == 2
    finally:
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=20)
        assert process.returncode == 0
    assert not any(Path(f"/proc/{child}").exists() for child in children)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "name at least one server"),
        (["--worker", "http://127.0.0.1:9", "--routing", "lgbr"], "unknown routing controller 'lgbr'"),
        (["--worker", "http://127.0.0.1:9", "--listen", "127.0.0.1:1"], "cannot listen on 127.0.0.1:1"),
        (["--worker", "http://127.0.0.1:9", "--tokenizer", "/nowhere"], "no tokenizer at /nowhere"),
        (["--worker", "http://127.0.0.1:9", "--log", "/proc/x/log"], "cannot write the request log"),
    ],
)
def test_mistakes__end_it_with_one_line(arguments: list[str], message: str) -> None:
    if "--listen" in arguments and os.geteuid() == 0:
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            taken.listen()
            arguments = [*arguments[:-1], f"127.0.0.1:{taken.getsockname()[1]}"]
            message = f"cannot listen on {arguments[-1]}"
            done = run([sys.executable, "-m", "kvgym", "route", *arguments], capture_output=True, text=True, cwd=ROOT)
    else:
        done = run([sys.executable, "-m", "kvgym", "route", *arguments], capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 2
    assert message in done.stderr
    assert "Traceback" not in done.stderr
