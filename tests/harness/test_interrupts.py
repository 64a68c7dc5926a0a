"""Killed and interrupted comparisons go on where they were, and leave no process behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

pytestmark = pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="reads /proc")

CONFIG = """
name: tiny
workloads: [{use: {source: gsp, groups: 16, prompts_per_group: 16, lens: [64, 128, 256]}, name: gsp}]
clusters: [{use: {workers: 2, capacity_tokens: 2000}, name: two}]
routing: [lbgr_release, cache_aware, random]
eviction: [lru, rlt]
seeds: 4
"""
RUNS = 24


def start(folder: Path, root: Path, config: str = CONFIG) -> subprocess.Popen:
    (folder / "tiny.yaml").write_text(config)
    command = [sys.executable, "-m", "kvgym", "compare", "tiny.yaml", "--jobs", "2", "--out", "out"]
    environment = {**os.environ, "PYTHONPATH": str(root)}
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    return subprocess.Popen(command, cwd=folder, env=environment, start_new_session=True, **pipes)


def wait_until(condition: Callable[[], bool], seconds: float, what: str) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, f"{what} after {seconds} s"
        time.sleep(0.01)


def alive(group: int) -> list[int]:
    """Return the processes of the group that still run (a zombie that nobody reaps does not)."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[2]) == group and fields[0] != "Z":
            found.append(int(stat.parent.name))
    return found


def marks(out: Path) -> dict[str, bytes]:
    """Return the marks of the finished runs; they hold wall times, so a run that is made again shows."""
    return {path.name: path.read_bytes() for path in (out / "records").glob("*.json")}


def summaries(out: Path) -> list[bytes]:
    return [(out / name).read_bytes() for name in ("summary.csv", "summary.json")]


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory, repo_root):
    """The output folder of a comparison that nobody has disturbed."""
    folder = tmp_path_factory.mktemp("fresh")
    finish(folder, repo_root)
    return folder / "out"


def finish(folder: Path, root: Path) -> None:
    with start(folder, root) as process:
        assert "Traceback" not in process.communicate(timeout=240)[1]
    assert process.returncode == 0


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
def test_compare__goes_on_after_a_kill_and_after_ctrl_c(tmp_path, repo_root, uninterrupted, number):
    out = tmp_path / "out"
    with start(tmp_path, repo_root) as process:
        wait_until(lambda: len(list((out / "records").glob("*.json"))) >= 3, 240, "no three runs have finished")
        if number == signal.SIGKILL:
            process.kill()
        else:
            os.killpg(process.pid, number)  # as a terminal does: to parent and workers
        errors = process.communicate(timeout=60)[1]
        wait_until(lambda: not alive(process.pid), 20, "worker processes are still there")
    if number == signal.SIGINT:
        assert process.returncode == 130
        assert "interrupted: finished runs are kept, the same command continues" in errors
        assert "Traceback" not in errors
    before = marks(out)
    assert 3 <= len(before) < RUNS and not (out / "summary.csv").exists()
    time.sleep(0.3)
    assert marks(out) == before, "somebody still writes"
    finish(tmp_path, repo_root)
    after = marks(out)
    assert len(after) == RUNS
    assert {name: after[name] for name in before} == before, "finished runs are not made again"
    assert summaries(out) == summaries(uninterrupted)
    assert (out / "report.html").read_bytes() == (uninterrupted / "report.html").read_bytes()
    assert not list(out.rglob("*.tmp"))


@pytest.mark.slow
@pytest.mark.parametrize("gap_s", [0.01, 0.2])
def test_compare__a_second_ctrl_c_leaves_no_process(tmp_path, repo_root, gap_s):
    """It may be ugly. What comes while processes are started is ignored, so the user may have to ask once more."""
    long = CONFIG.replace("prompts_per_group: 16", "prompts_per_group: 60_000")  # runs of a minute and more
    with start(tmp_path, repo_root, long) as process:
        wait_until(lambda: (tmp_path / "out" / "records").is_dir(), 240, "it has not begun")
        asked_s = time.monotonic()
        while process.poll() is None:
            assert time.monotonic() - asked_s < 30, "it goes on"
            os.killpg(process.pid, signal.SIGINT)
            time.sleep(gap_s if time.monotonic() - asked_s < 2 * gap_s else 2.0)
        process.communicate()
        wait_until(lambda: not alive(process.pid), 20, "worker processes are still there")
    assert process.returncode != 0
