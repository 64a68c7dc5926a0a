"""Fixtures that talk to the oracle: SGLang's RadixCache in its own Python (see scripts/setup_live.sh)."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest


class Oracle:
    """A running oracle_server.py: one JSON request in, one JSON answer out."""

    def __init__(self, python: Path) -> None:
        server = Path(__file__).with_name("oracle_server.py")
        self._process = subprocess.Popen(
            [python, "-W", "ignore", server], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        assert self._receive() == "ready"

    def _receive(self) -> Any:
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"the oracle stopped with status {self._process.wait()}; its message is on stderr")
        return json.loads(line)

    def ask(self, **request: Any) -> list[list[int]]:
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()
        return self._receive()

    def close(self) -> None:
        self._process.communicate()


@pytest.fixture(scope="session")
def oracle(repo_root: Path) -> Iterator[Oracle]:
    named = os.environ.get("KVGYM_LIVE_PYTHON")
    python = Path(named) if named else repo_root / ".live/bin/python"
    if not python.is_file():
        pytest.skip(f"no oracle at {named or '.live/bin/python'}; run `scripts/setup_live.sh .live`")
    oracle = Oracle(python)
    yield oracle
    oracle.close()


@pytest.fixture
def count(
    tmp_path_factory: pytest.TempPathFactory, capsys: pytest.CaptureFixture[str]
) -> Callable[[str, str, int], None]:
    """Prints how much was compared, and the sum over the run, past pytest's capture: `make test` must show it."""
    base = tmp_path_factory.getbasetemp()
    folder = base.parent if "PYTEST_XDIST_WORKER" in os.environ else base  # shared by the run's processes

    def add(unit: str, what: str, number: int) -> None:
        log = folder / f"differential-{unit}"
        with log.open("a") as file:
            file.write(f"{number}\n")
        total = sum(map(int, log.read_text().split()))
        with capsys.disabled():  # xdist takes its workers' stdout but leaves them stderr
            line = f"\ndifferential: {what}: {number:,} {unit} equal SGLang's; {total:,} {unit} so far\n"
            os.write(2, line.encode())

    return add
