"""Fixtures that every test package may use."""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).resolve().parent.parent


def pytest_configure() -> None:
    """Undo what a shell's background job inherits: it ignores Ctrl-C, and so would the processes that tests start."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--soak", action="store_true", help="run what is marked soak, too, and four times as many random cases"
    )


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what is for `make soak`; start slow tests first, so that no process waits for one begun last."""
    if not config.getoption("--soak"):
        longer = [item for item in items if "soak" in item.keywords]
        config.hook.pytest_deselected(items=longer)
        items[:] = [item for item in items if "soak" not in item.keywords]
    items.sort(key=lambda item: "slow" not in item.keywords)


@pytest.fixture(scope="session")
def effort(pytestconfig: pytest.Config) -> int:
    """By how much to multiply the number of random cases: 1, with --soak 4."""
    return 4 if pytestconfig.getoption("--soak") else 1


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


@pytest.fixture(scope="session")
def live_python(repo_root: Path) -> Path:
    """The Python that has SGLang, and what vLLM's scheduler imports; the test is skipped where it is absent."""
    named = os.environ.get("KVGYM_LIVE_PYTHON")
    python = Path(named) if named else repo_root / ".live/bin/python"
    if not python.is_file():
        pytest.skip(f"no SGLang at {named or '.live/bin/python'}; run `scripts/setup_live.sh .live`")
    return python


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


WORDS = ("alpha", "beta", "gamma", "delta", "one", "two", "naïve", "你好", "x1", "(so)")


@dataclass
class Chats:
    """Rows in the order of their arrival, and for each the conversation that it belongs to."""

    rows: list[dict]
    conversation: list[int]

    def write(self, file: Path, change=lambda row: row) -> str:
        """Write the rows, each passed through `change`, as JSON lines."""
        file.write_text("".join(json.dumps(change(row)) + "\n" for row in self.rows), encoding="utf-8")
        return str(file)


def _chats(requests: int, seed: int = 0) -> Chats:
    """Return interleaved conversations under one of three system prompts; every answer is logged."""
    rng = np.random.default_rng(seed)

    def text(count: int) -> str:
        return " ".join(rng.choice(WORDS, count)) + "."

    systems = [f"You are {text(20)}" for _ in range(3)]
    rows, conversation, going, time_s, started = [], [], [], 1_700_000_000.0, 0
    while len(rows) < requests:
        time_s += float(rng.exponential(0.5))
        if going and rng.random() < 0.6:
            number, said, free_s = going.pop(rng.integers(len(going)))
            time_s = max(time_s, free_s + 0.1)
        else:
            number, said = started, [{"role": "system", "content": systems[rng.integers(3)]}]
            started += 1
        # the number makes every first question another one, so that a conversation is told by its text
        said = [*said, {"role": "user", "content": f"{number} {text(int(rng.integers(3, 12)))}"}]
        answer = text(int(rng.integers(2, 25)))
        message = {"role": "assistant", "content": answer}
        rows.append({"timestamp": time_s, "latency_s": 0.4, "messages": said, "choices": [{"message": message}]})
        conversation.append(number)
        if rng.random() < 0.75:
            going.append((number, [*said, message], time_s + 0.4))
    return Chats(rows, conversation)


@pytest.fixture
def make_chats():
    """Maker of chats: (number of requests, seed)."""
    return _chats
