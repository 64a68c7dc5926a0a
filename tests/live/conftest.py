"""Real SGLang servers on the CPU: one fleet at a time, kept between tests that ask for the same one."""

from __future__ import annotations

import http.client
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import numpy as np
import pytest

from kvgym.backends.sglang import pool
from kvgym.backends.sglang.backend import LiveBackend
from kvgym.backends.simulated import SimulatedBackend
from kvgym.config.cluster import ClusterConfig
from kvgym.config.options import build
from kvgym.forest.forest import Forest
from kvgym.types import REQUEST, Decision
from kvgym.workloads.base import Workload
from kvgym.workloads.building.sessions import make_workload

POOL_TOKENS = 4096
KEY_VARIABLE = "KVGYM_TEST_KEY"


@pytest.fixture(scope="session")
def make_cluster(live_python: Path) -> Iterator[Callable[..., ClusterConfig]]:
    """Return a function that makes a live cluster; extra keywords go to its `live` part.

    Servers with larger pages also want an API key and publish KV events: no test of that needs servers of its own.
    """
    patch = pytest.MonkeyPatch()
    patch.setenv(KEY_VARIABLE, "right")

    def make(workers: int = 2, page_size: int = 1, retries: int = 3, **live: Any) -> ClusterConfig:
        live = {"api_key_variable": KEY_VARIABLE if page_size > 1 else "", "kv_events": page_size > 1} | live
        live = {"model": str(live_python.parent.parent / "model"), "python": str(live_python)} | live
        if "urls" in live:
            del live["model"], live["python"]
        sizes = {"capacity_tokens": POOL_TOKENS, "chunk_tokens": POOL_TOKENS, "page_size": page_size}
        return build(ClusterConfig, {"workers": workers, "retries": retries, "live": live, **sizes}, "cluster")

    yield make
    pool.release()
    patch.undo()


@pytest.fixture
def open_backend() -> Iterator[Callable[..., LiveBackend]]:
    """Return `LiveBackend`; what it opened is closed after the test."""
    opened: list[LiveBackend] = []

    def make(*arguments: Any, **keywords: Any) -> LiveBackend:
        opened.append(LiveBackend(*arguments, **keywords))
        return opened[-1]

    yield make
    for backend in opened:
        backend.close()


def play(backend: Any, choose: Callable[[Decision], int]) -> np.ndarray:
    """Route every request by `choose`; return the records in order of the requests."""
    while (decision := backend.run_to_decision()) is not None:
        backend.apply(choose(decision))
    records = backend.records()
    return records[np.argsort(records["request"])]


def text_workload(
    prompts: list[list[int]],
    outputs: list[int],
    page_size: int = 1,
    clients: int = 1,
    sessions: list[int] | None = None,
) -> Workload:
    """Return a closed-loop workload over token-id prompts; requests of one session follow each other.

    A prompt that begins with the one before it in its session, and is longer by at least that one's answer, continues
    that answer.
    """
    forest = Forest(page_size)
    requests = np.zeros(len(prompts), REQUEST)
    requests["prompt_node"] = [forest.insert(prompt) for prompt in prompts]
    requests["output_node"] = -1
    for i in range(len(prompts) - 1):
        length = len(prompts[i])
        follows = sessions is not None and sessions[i] == sessions[i + 1]
        if follows and prompts[i + 1][:length] == prompts[i] and len(prompts[i + 1]) >= length + outputs[i]:
            requests["output_node"][i] = forest.insert(prompts[i + 1][: length + outputs[i]])
    requests["prompt_tokens"] = [len(prompt) for prompt in prompts]
    requests["output_tokens"] = outputs
    requests["session"] = np.arange(len(prompts)) if sessions is None else sessions
    return make_workload("text", forest, requests, clients=clients, notes={})


def replayed(live: LiveBackend, workload: Workload) -> Workload:
    """Return the workload whose prompts and answers are those that were really sent and returned."""
    forest = Forest(workload.page_size)
    requests = workload.requests.copy()
    for r in range(len(requests)):
        prompt = live.prompt(r).tolist()
        requests["prompt_node"][r] = forest.insert(prompt)
        requests["output_node"][r] = forest.insert(prompt + live.output(r))
    return Workload("replay", forest, requests, workload.heads, workload.clients)


def writers(folder: Path) -> list[str]:
    """Return the names of the processes whose output goes to `folder`: SGLang's hide their environment and command."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            if os.readlink(entry / "fd" / "2").startswith(f"{folder}/"):
                found.append(f"{entry.name} {(entry / 'comm').read_text().strip()}")
        except OSError:
            continue
    return found


def wait_gone(folder: Path, seconds: float = 60) -> None:
    end = time.monotonic() + seconds
    while left := writers(folder):
        assert time.monotonic() < end, f"still there: {left}"
        time.sleep(0.2)


@pytest.fixture(scope="session")
def tools() -> Any:
    """Return the helpers of this file: test modules can't import a conftest."""

    class Tools:
        play = staticmethod(play)
        text_workload = staticmethod(text_workload)
        replayed = staticmethod(replayed)
        simulated = SimulatedBackend
        writers = staticmethod(writers)
        wait_gone = staticmethod(wait_gone)

    return Tools


class Proxy(ThreadingHTTPServer):
    """Stands in front of one real server; what the first `faults` generations meet, `fault` says.

    Args:
        url: the server.
        fault: unavailable (HTTP 503), cut (the stream breaks off after its first bytes), short (it ends in good order,
            but before its last event).
        faults: how many generations meet it.

    Attributes:
        generations: POST /generate seen so far.
    """

    daemon_threads = True
    block_on_close = False

    def __init__(self, url: str, fault: str, faults: int) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.target = urlsplit(url).netloc
        self.fault, self.faults, self.generations = fault, faults, 0
        self.lock = threading.Lock()

    @property
    def url(self) -> str:
        """Where it listens."""
        return f"http://127.0.0.1:{self.server_address[1]}"

    def next_fault(self, path: str) -> str:
        """Return what is to happen to a request to `path`; '' for nothing."""
        if path != "/generate":
            return ""
        with self.lock:
            self.generations += 1
            return self.fault if self.generations <= self.faults else ""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Proxy

    def do_GET(self) -> None:
        self._pass(self.server.next_fault(self.path))

    def do_POST(self) -> None:
        self._pass(self.server.next_fault(self.path))

    def log_message(self, *_: object) -> None:
        """Say nothing."""

    def _pass(self, fault: str) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        if fault == "unavailable":
            self.send_response(503)
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        upstream = http.client.HTTPConnection(self.server.target, timeout=60)
        try:
            upstream.request(self.command, self.path, body, {"Content-Type": "application/json"})
            answer = upstream.getresponse()
            self.send_response(answer.status)
            self.send_header("Transfer-Encoding", "chunked")
            self.send_header("Connection", "close")
            self.end_headers()
            while part := answer.read1(1 << 16):
                self.wfile.write(b"%x\r\n%s\r\n" % (len(part), part))
                if fault:
                    break
            if fault != "cut":
                self.wfile.write(b"0\r\n\r\n")
        except OSError:
            pass  # the other side has gone
        finally:
            self.close_connection = True
            upstream.close()


@contextmanager
def proxied(url: str, fault: str, faults: int) -> Iterator[Proxy]:
    """Yield a running proxy in front of `url`."""
    with Proxy(url, fault, faults) as proxy:
        thread = threading.Thread(target=proxy.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
        thread.start()
        try:
            yield proxy
        finally:
            proxy.shutdown()
            thread.join()


@pytest.fixture(scope="session", name="proxied")
def proxied_fixture() -> Any:
    """Return `proxied`: test modules can't import a conftest."""
    return proxied
