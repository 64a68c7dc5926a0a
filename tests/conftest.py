"""Fixtures that every test package may use."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent


def pytest_configure() -> None:
    """Undo what a shell's background job inherits: it ignores Ctrl-C, and so would the processes that tests start."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Start the slow tests first, so that no process waits for one that another has begun last."""
    items.sort(key=lambda item: "slow" not in item.keywords)


@pytest.fixture(scope="session")
def repo_root() -> Path:
    """The checkout."""
    return ROOT


@pytest.fixture(scope="session")
def data_dir() -> Path:
    """The folder of public traces and measured data (KVGYM_DATA); the test is skipped where it is absent."""
    folder = (ROOT / os.environ.get("KVGYM_DATA", "../shared/data")).resolve()
    if not folder.is_dir():
        pytest.skip(f"no data folder at {os.environ.get('KVGYM_DATA', '../shared/data')}; set KVGYM_DATA")
    return folder


@pytest.fixture
def kvgym(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> Callable[..., tuple[int, str, str]]:
    """Run the command line in an empty folder; return (exit code, stdout, stderr)."""
    from kvgym import cli

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))

    def call(*args: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["kvgym", *args])
        with pytest.raises(SystemExit) as stopped:
            cli.main()
        captured = capsys.readouterr()
        return stopped.value.code or 0, captured.out, captured.err

    return call
