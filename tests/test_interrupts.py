"""An interrupted command says in one line what is left, and ends with 130; what it starts leaves Ctrl-C to it."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest

from kvgym.interrupts import ignored, told


def test_told__one_line_and_the_exit_code(capsys):
    with pytest.raises(SystemExit) as stopped, told(lambda: "half of it"):
        raise KeyboardInterrupt
    assert (stopped.value.code, capsys.readouterr()) == (130, ("", "interrupted: half of it\n"))


def test_told__an_interrupt_that_became_another_exception(capsys):
    with pytest.raises(SystemExit) as stopped, told():
        try:
            raise KeyboardInterrupt
        except KeyboardInterrupt:
            raise RuntimeError("no compiled object yet")  # noqa: B904 - as numba does it
    assert (stopped.value.code, capsys.readouterr().err) == (130, "interrupted\n")


def test_told__leaves_other_exceptions_alone():
    with pytest.raises(RuntimeError, match="not interrupted"), told():
        raise RuntimeError("not interrupted")


def test_ignored__until_the_end_of_the_block_and_in_processes_started_there():
    code = "import signal; print(signal.getsignal(signal.SIGINT) == signal.SIG_IGN)"
    with ignored():
        signal.raise_signal(signal.SIGINT)
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "True\n"
    with pytest.raises(KeyboardInterrupt):
        signal.raise_signal(signal.SIGINT)
