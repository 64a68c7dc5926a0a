"""Fixtures that talk to the oracles: SGLang's RadixCache and vLLM's scheduler in a Python of their own."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest


class Oracle:
    """A running server script of this folder: one JSON request in, one JSON answer out."""

    def __init__(self, python: Path, script: str, *arguments: Path) -> None:
        server = Path(__file__).with_name(script)
        self._process = subprocess.Popen(
            [python, "-W", "ignore", server, *arguments], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        assert self._receive() == "ready"

    def _receive(self) -> Any:
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"the oracle stopped with status {self._process.wait()}; its message is on stderr")
        return json.loads(line)

    def ask(self, **request: Any) -> Any:
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()
        return self._receive()

    def close(self) -> None:
        self._process.communicate()


@pytest.fixture(scope="session")
def oracle(live_python: Path) -> Iterator[Oracle]:
    oracle = Oracle(live_python, "oracle_server.py")
    yield oracle
    oracle.close()


@pytest.fixture
def vllm(repo_root: Path, live_python: Path, tell: Callable[[str], None]) -> Iterator[Callable[[str], Oracle]]:
    """Starts vLLM's scheduler of a release, with `tell` to print what was compared."""
    started: list[Oracle] = []

    def start(release: str) -> Oracle:
        folder = Path(os.environ.get("KVGYM_VLLM", repo_root / ".vllm")) / release
        if not folder.is_dir():
            pytest.skip(f"no vLLM {release} at {folder}; run `scripts/setup_vllm.sh .vllm`")
        started.append(Oracle(live_python, "vllm_server.py", folder))
        started[-1].tell = tell
        return started[-1]

    yield start
    for oracle in started:
        oracle.close()


@pytest.fixture
def tell(capsys: pytest.CaptureFixture[str]) -> Callable[[str], None]:
    """Prints a line past pytest's capture: `make test` must show how much was compared."""

    def say(line: str) -> None:
        with capsys.disabled():  # xdist takes its workers' stdout but leaves them stderr
            os.write(2, f"\ndifferential: {line}\n".encode())

    return say


@pytest.fixture
def count(tmp_path_factory: pytest.TempPathFactory, tell: Callable[[str], None]) -> Callable[[str, str, int], None]:
    """Prints how much was compared, and the sum over the run, past pytest's capture: `make test` must show it."""
    base = tmp_path_factory.getbasetemp()
    folder = base.parent if "PYTEST_XDIST_WORKER" in os.environ else base  # shared by the run's processes

    def add(unit: str, what: str, number: int) -> None:
        log = folder / f"differential-{unit}"
        with log.open("a") as file:
            file.write(f"{number}\n")
        total = sum(map(int, log.read_text().split()))
        tell(f"{what}: {number:,} {unit} equal SGLang's; {total:,} {unit} so far")

    return add
