"""The scripts as a user starts them."""

from __future__ import annotations

import os
import runpy
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

Outcome = tuple[int, str, str]
"""Exit code, stdout, stderr."""


@pytest.fixture
def script(repo_root: Path, tmp_path: Path) -> Callable[..., Outcome]:
    """Return a function that runs a script of `scripts/` in an empty folder."""

    def script(name: str, *args: str) -> Outcome:
        command = [sys.executable, "-W", "error", str(repo_root / "scripts" / f"{name}.py"), *args]
        env = {**os.environ, "PYTHONPATH": str(repo_root)}
        done = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True, check=False)
        return done.returncode, done.stdout, done.stderr

    return script


@pytest.fixture
def call(
    repo_root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., Outcome]:
    """Return a function that does the same in this process, which has imported torch already."""

    def call(name: str, *args: str) -> Outcome:
        monkeypatch.chdir(tmp_path)
        monkeypatch.setattr(sys, "argv", [name, *args])
        with pytest.raises(SystemExit) as stopped:
            runpy.run_path(str(repo_root / "scripts" / f"{name}.py"), run_name="__main__")
        captured = capsys.readouterr()
        return int(stopped.value.code or 0), captured.out, captured.err

    return call
