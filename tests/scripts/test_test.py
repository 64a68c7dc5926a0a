"""The script behind `make test` runs both halves to their end, shows both, and fails if one does."""

from __future__ import annotations

import subprocess
import time
from pathlib import Path

import pytest

FAKE = """#!/bin/sh
case "$*" in
*"not live"*) echo "the others"; exit {others} ;;
*) echo "begun"; sleep 0.5; echo "ended"; exit {live} ;;
esac
"""


@pytest.mark.parametrize(("others", "live"), [(0, 0), (1, 0), (0, 1), (1, 5)])
def test_script__fails_if_either_half_does(others: int, live: int, tmp_path: Path, repo_root: Path) -> None:
    python = tmp_path / "python"
    python.write_text(FAKE.format(others=others, live=live))
    python.chmod(0o755)
    done = subprocess.run([repo_root / "scripts/test.sh", python], capture_output=True, text=True, timeout=60)
    assert done.stdout.splitlines() == ["the others", "Tests with real servers:", "begun", "ended"]
    assert (done.returncode == 0) == (others == live == 0)


def test_script__killed_it_ends_at_once_and_so_do_both_halves(tmp_path: Path, repo_root: Path) -> None:
    python = tmp_path / "python"
    python.write_text('#!/bin/sh\necho $$ >>"$(dirname "$0")/pids"\nexec sleep 60\n')
    python.chmod(0o755)
    pids = tmp_path / "pids"
    with subprocess.Popen([repo_root / "scripts/test.sh", python], stdout=subprocess.DEVNULL) as script:
        while not pids.exists() or len(pids.read_text().split()) < 2:
            time.sleep(0.05)
        script.terminate()
        assert script.wait(timeout=20) == 130
    end = time.monotonic() + 10
    while running := [pid for pid in pids.read_text().split() if Path(f"/proc/{pid}").exists()]:
        assert time.monotonic() < end, f"still there: {running}"
        time.sleep(0.05)


def test_script__wants_an_interpreter(repo_root: Path) -> None:
    done = subprocess.run([repo_root / "scripts/test.sh"], capture_output=True, text=True, timeout=60)
    assert done.returncode == 1
    assert "expected a Python interpreter" in done.stderr
