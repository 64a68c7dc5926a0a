"""Nothing that was started outlives the process that started it; a stand-in plays the sglang-router."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from kvgym.backends.sglang.watchdog import Watchdog, members, stop_groups
from kvgym.config.live import LiveConfig
from kvgym.errors import BackendError, MissingDependencyError

psutil = pytest.importorskip("psutil")
ROUTER = """
import argparse, http.server, json, subprocess
parser = argparse.ArgumentParser()
parser.add_argument("--port", type=int)
parser.add_argument("--worker-urls", nargs="+")
args, _ = parser.parse_known_args()

class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
        self.wfile.write(json.dumps({"workers": [{"is_healthy": True} for _ in args.worker_urls]}).encode())

subprocess.Popen(["sleep", "300"], start_new_session=True)
http.server.HTTPServer(("127.0.0.1", args.port), Handler).serve_forever()
"""
STARTER = """
import sys, time
from kvgym.backends.sglang.gateway import FrontRouter
from kvgym.config.live import LiveConfig
router = FrontRouter(LiveConfig(urls=("http://127.0.0.1:9",), start_timeout_s=30.0), ["http://127.0.0.1:9"], "random")
print(router._process.pid, flush=True)
if sys.argv[1] == "close":
    router.close()
time.sleep(300 if sys.argv[1] == "wait" else 0)
"""
DEAF = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('deaf', flush=True); time.sleep(300)"


def wait_gone(processes: list[psutil.Process], seconds: float = 20) -> None:
    end = time.monotonic() + seconds
    while left := [p for p in processes if p.is_running() and p.status() != psutil.STATUS_ZOMBIE]:
        assert time.monotonic() < end, f"still there: {left}"
        time.sleep(0.05)


@pytest.fixture
def start(tmp_path: Path, repo_root: Path) -> Iterator[Callable[[str], tuple[subprocess.Popen[str], list[Any]]]]:
    """Start a process that starts a router; return it, and the router with the helper that that has started."""
    (tmp_path / "sglang_router").mkdir()
    (tmp_path / "sglang_router" / "__init__.py").write_text("")
    (tmp_path / "sglang_router" / "launch_router.py").write_text(ROUTER)
    paths = os.pathsep.join((str(tmp_path), str(repo_root)))
    environment = {**os.environ, "PYTHONPATH": paths, "TMPDIR": str(tmp_path), "KVGYM_LIVE_PYTHON": sys.executable}

    seen: list[psutil.Process] = []

    def begin(then: str) -> tuple[subprocess.Popen[str], list[psutil.Process]]:
        command = [sys.executable, "-c", STARTER, then]
        starter = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)
        router = psutil.Process(int(starter.stdout.readline()))
        started = [router, *router.children(recursive=True)]
        seen.extend(started)
        return starter, started

    yield begin
    for process in seen:  # a failed test leaves none, too
        with contextlib.suppress(psutil.NoSuchProcess):
            process.kill()


def test_router__is_gone_when_its_starter_is_killed(start: Callable) -> None:
    starter, _ = start("wait")
    with starter:
        started = psutil.Process(starter.pid).children(recursive=True)
        assert len(started) == 3, "the watchdog, the router and its helper, which has a session of its own"
        starter.kill()
    wait_gone(started)


@pytest.mark.parametrize("then", ["close", "end"])
def test_router__is_gone_when_it_is_closed_and_when_its_starter_ends(start: Callable, then: str) -> None:
    starter, started = start(then)
    with starter:
        assert starter.wait(timeout=30) == 0
    wait_gone(started)


def test_router__that_cannot_be_run_is_one_clear_error(tmp_path: Path) -> None:
    from kvgym.backends.sglang.gateway import FrontRouter

    live = LiveConfig(urls=("http://127.0.0.1:9",), python=str(tmp_path / "nothing"))
    with pytest.raises(BackendError, match=r"cannot run .*nothing: .*; set live\.python"):
        FrontRouter(live, ["http://127.0.0.1:9"], "random")


def test_no_psutil__the_error_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "psutil", None)
    with pytest.raises(MissingDependencyError, match=r"need pip install 'kvgym\[live\]'"):
        Watchdog()


def test_stop_groups__kills_what_is_stopped_or_does_not_listen() -> None:
    command = [sys.executable, "-c", DEAF]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, start_new_session=True) as process:
        assert process.stdout.readline() == "deaf\n"
        os.killpg(process.pid, signal.SIGSTOP)
        assert {found.pid for found in members([process.pid])} == {process.pid}
        stop_groups([process.pid], grace_s=0.3)
        assert process.wait(timeout=5) == -signal.SIGKILL
    assert members([process.pid]) == set()
