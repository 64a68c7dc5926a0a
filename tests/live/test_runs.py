"""Comparisons on real servers: side by side with the simulator, killed and resumed, interrupted, two at once."""

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

from kvgym.backends.sglang import pool
from kvgym.config.cluster import ClusterConfig
from kvgym.config.options import to_plain
from kvgym.records import read_records
from kvgym.types import DONE

pytestmark = [pytest.mark.live, pytest.mark.slow, pytest.mark.timeout(600)]
PEER = "kvgym.backends.sglang.gateway_peer:RouterPeer"
CELLS = [
    {"routing": "cache_aware", "eviction": "lru"},
    {"routing": {"use": PEER, "name": "real_router", "options": {"policy": "round_robin"}}, "eviction": "lru"},
]


def start(folder: Path, root: Path, cluster: dict[str, Any], cells: Any, **workload: Any) -> subprocess.Popen:
    """Start `kvgym compare` in `folder`; all processes that come of it write to files there."""
    gsp = {"source": "gsp", "groups": 12, "prompts_per_group": 8, "lens": [200], "output_tokens": 4, "rate_rps": 20.0}
    config = {
        "name": "tiny",
        "workloads": [{"use": gsp | workload, "name": "gsp"}],
        "clusters": [{"use": cluster, "name": "sim"}, {"use": cluster, "name": "real", "backend": "sglang"}],
        "cells": cells,
        "seeds": 2,
    }
    (folder / "tiny.yaml").write_text(yaml.safe_dump(config))
    command = [sys.executable, "-m", "kvgym", "compare", "tiny.yaml", "--jobs", "1", "--out", "out"]
    environment = {**os.environ, "PYTHONPATH": str(root), "TMPDIR": str(folder)}
    with (folder / "out.txt").open("w") as out, (folder / "errors.txt").open("w") as errors:
        return subprocess.Popen(command, cwd=folder, env=environment, stdout=out, stderr=errors, start_new_session=True)


def wait_until(condition: Callable[[], bool], process: subprocess.Popen, seconds: float = 300) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert process.poll() is None, "the comparison has ended"
        assert time.monotonic() < end, f"not after {seconds} s"
        time.sleep(0.05)


def lines(folder: Path) -> int:
    """Return how many requests of unfinished runs are on disk."""
    journals = (folder / "out" / "records").glob("*.jsonl")
    return sum(len(path.read_text().splitlines()) for path in journals if not path.with_suffix(".json").exists())


def marks(folder: Path) -> dict[str, bytes]:
    """Return the marks of the finished runs on real servers; they hold wall times, so a second run shows."""
    return {path.name: path.read_bytes() for path in (folder / "out" / "records").glob("gsp-real-*.json")}


@pytest.fixture
def attached(make_cluster: Any) -> dict[str, Any]:
    """Return a cluster of the two servers that are up, as plain data."""
    urls = [server.url for server in pool.acquire(make_cluster(), "lru")]
    return plain(make_cluster(urls=urls))


def plain(cluster: ClusterConfig) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(json.dumps(to_plain(cluster)))
    return found


def test_killed__goes_on_per_cell_and_shows_both_kinds_side_by_side(
    attached: dict[str, Any], tools: Any, tmp_path: Path, repo_root: Path
) -> None:
    process = start(tmp_path, repo_root, attached, CELLS)
    wait_until(lambda: len(marks(tmp_path)) >= 1 and lines(tmp_path) >= 3, process)  # in the second run
    wait_until(lambda: any("router" in name for name in tools.writers(tmp_path)), process)
    process.kill()
    process.wait()
    tools.wait_gone(tmp_path)
    finished = marks(tmp_path)
    assert 1 <= len(finished) < 4
    process = start(tmp_path, repo_root, attached, CELLS)
    assert process.wait(timeout=400) == 0, (tmp_path / "errors.txt").read_text()
    assert len(marks(tmp_path)) == 4
    assert {name: marks(tmp_path)[name] for name in finished} == finished
    for path in (tmp_path / "out" / "records").glob("gsp-real-*.parquet"):
        records = read_records(path)
        assert sorted(records["request"]) == list(range(96))
        assert (records["status"] == DONE).all()
    told, report = (tmp_path / "out.txt").read_text(), (tmp_path / "out" / "report.md").read_text()
    page = (tmp_path / "out" / "report.html").read_text()
    for text in (told, report, page):
        assert "Simulated / real servers" in text
    (ours,) = (line.split("|") for line in report.splitlines() if line.startswith("| gsp | cache_aware"))
    simulated, real = (float(part) for part in ours[4].split("/"))
    assert simulated == pytest.approx(real, abs=10)
    (theirs,) = (line.split("|") for line in report.splitlines() if line.startswith("| gsp | real_router"))
    assert theirs[4].split("/")[0].strip() == "-"
    assert float(theirs[4].split("/")[1]) > 10
    assert float(theirs[6].split("/")[1]) < 1.5  # round robin: the work is at both, whoever has chosen
    assert not tools.writers(tmp_path)


def test_journal__has_every_request_that_has_ended(
    make_cluster: Any, open_backend: Any, tools: Any, tmp_path: Path
) -> None:
    journal = tmp_path / "journal.jsonl"
    workload = tools.text_workload([[i] * 30 for i in range(10, 50)], [4] * 40, clients=4)
    backend = open_backend(workload, make_cluster(), "lru", 0, journal=journal)

    def choose(decision: Any) -> int:
        written = journal.read_text().splitlines() if journal.exists() else []
        assert [json.loads(line)["request"] for line in written] == backend.records()["request"].tolist()
        return decision.request % 2

    records = tools.play(backend, choose)
    assert len(journal.read_text().splitlines()) == len(records) == 40


def test_two_at_once__each_starts_its_own_and_ctrl_c_of_one_leaves_the_other_alone(
    make_cluster: Any, tools: Any, tmp_path: Path, repo_root: Path
) -> None:
    own, folders = plain(make_cluster(workers=1)), [tmp_path / "goes_on", tmp_path / "interrupted"]
    for folder in folders:
        folder.mkdir()
    first = start(folders[0], repo_root, own, CELLS[:1])
    second = start(folders[1], repo_root, own, CELLS[:1], prompts_per_group=200)
    wait_until(lambda: lines(folders[1]) >= 20, second)
    os.killpg(second.pid, signal.SIGINT)
    assert second.wait(timeout=60) != 0
    assert "Traceback" not in (folders[1] / "errors.txt").read_text()
    tools.wait_gone(folders[1])
    assert lines(folders[1]) >= 20
    assert first.wait(timeout=300) == 0, (folders[0] / "errors.txt").read_text()
    assert len(marks(folders[0])) == 2
    assert not tools.writers(folders[0])
