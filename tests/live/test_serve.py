"""`kvgym serve-workers`: nothing is left behind, however it ends."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from kvgym.backends.sglang.launcher import check_server
from kvgym.config.options import to_plain

pytestmark = [pytest.mark.live, pytest.mark.slow, pytest.mark.timeout(600)]


def start(folder: Path, root: Path, make_cluster: Any) -> subprocess.Popen:
    """Start `kvgym serve-workers` with one server in `folder`."""
    folder.mkdir()
    (folder / "one.yaml").write_text(yaml.safe_dump(json.loads(json.dumps(to_plain(make_cluster(workers=1))))))
    command = [
        sys.executable,
        "-m",
        "kvgym",
        "serve-workers",
        "one.yaml",
        "--eviction",
        "rlt",
        "--logs",
        "logs",
        "--json",
    ]
    environment = {**os.environ, "PYTHONPATH": str(root), "TMPDIR": str(folder)}
    with (folder / "out.txt").open("w") as out, (folder / "errors.txt").open("w") as errors:
        return subprocess.Popen(command, cwd=folder, env=environment, stdout=out, stderr=errors, start_new_session=True)


def wait_for(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + 300
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.05)


def wait_until_told(what: str, folder: Path, process: subprocess.Popen) -> str:
    """Return what `process` has written to stderr as soon as `what` is in it."""
    errors = folder / "errors.txt"
    wait_for(lambda: what in errors.read_text() or process.poll() is not None)
    assert what in errors.read_text()
    return errors.read_text()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_up__nothing_is_left(number: int, make_cluster: Any, tools: Any, tmp_path: Path, repo_root: Path) -> None:
    folder = tmp_path / "up"
    process = start(folder, repo_root, make_cluster)
    told = wait_until_told("Ctrl-C stops them", folder, process)
    (url,) = yaml.safe_load(told.split("attach with  live: ")[1].splitlines()[0])["urls"]
    assert check_server(url, "rlt").capacity_tokens == 4096
    os.kill(process.pid, number)
    code = process.wait(timeout=60)
    if number == signal.SIGINT:
        assert code == 0
        assert json.loads((folder / "out.txt").read_text()) == {"urls": [url], "capacity_tokens": [4096]}
    assert "Traceback" not in (folder / "errors.txt").read_text()
    tools.wait_gone(folder)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_starting__it_ends_at_once(number: int, make_cluster: Any, tools: Any, tmp_path: Path, repo_root: Path) -> None:
    folder = tmp_path / "starts"
    process = start(folder, repo_root, make_cluster)
    wait_until_told("starting 1 SGLang servers", folder, process)
    os.kill(process.pid, number)
    assert process.wait(timeout=60) == 130
    told = (folder / "errors.txt").read_text()
    assert told.endswith("interrupted: its servers are stopped\n")
    assert "Traceback" not in told
    tools.wait_gone(folder)
