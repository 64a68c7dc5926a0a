"""The script behind `make test` runs both halves to their end, shows both, and fails if one does."""

from __future__ import annotations

import subprocess
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


def test_script__wants_an_interpreter(repo_root: Path) -> None:
    done = subprocess.run([repo_root / "scripts/test.sh"], capture_output=True, text=True, timeout=60)
    assert done.returncode == 1
    assert "expected one argument" in done.stderr
