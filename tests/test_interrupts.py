"""The first Ctrl-C ends a command in good order, the second ends it at once, wherever it comes."""

from __future__ import annotations

import subprocess
import sys
import textwrap

import pytest

BEGIN = """
import multiprocessing, signal, sys, time
from kvgym.interrupts import Interrupts

def ctrl_c(raised=signal.raise_signal, number=signal.SIGINT):
    raised(number)

class Late:
    def __del__(self, ctrl_c=ctrl_c):
        ctrl_c()

def child():
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    time.sleep(60)

interrupts = Interrupts()
"""


def ended(code: str) -> tuple[int, str, str]:
    """Return exit code, stdout and stderr of a process that runs the code."""
    done = subprocess.run(
        [sys.executable, "-c", BEGIN + textwrap.dedent(code)], capture_output=True, text=True, timeout=30, check=False
    )
    return done.returncode, done.stdout, done.stderr


def test_one__ends_in_good_order_and_says_what_is_left():
    code = """
    with interrupts.taken(), interrupts.telling(lambda: "half of it"):
        try:
            ctrl_c()
        finally:
            print("cleaned up")
    """
    assert ended(code) == (130, "cleaned up\n", "interrupted: half of it\n")


def test_two__the_second_ends_it_at_once_with_its_processes():
    code = """
    with interrupts.taken(), interrupts.telling(lambda: "half of it"):
        process = multiprocessing.get_context("fork").Process(target=child)
        process.start()
        try:
            ctrl_c()
        finally:
            ctrl_c()
            print("never")
    """
    assert ended(code) == (130, "", "interrupted: half of it\n")


def test_one__where_python_ignores_it():
    code = """
    late = Late()
    with interrupts.taken(), interrupts.telling(lambda: "half of it"):
        del late
        time.sleep(20)
        print("never")
    """
    assert ended(code) == (130, "", "interrupted: half of it\n")


def test_one__that_turns_into_another_exception():
    code = """
    with interrupts.taken(), interrupts.telling(lambda: "half of it"):
        try:
            ctrl_c()
        except KeyboardInterrupt:
            raise RuntimeError("no compiled object yet")
    """
    assert ended(code) == (130, "", "interrupted: half of it\n")


def test_one__that_is_ignored_and_followed_by_another_exception():
    code = """
    late = Late()
    with interrupts.taken(), interrupts.telling(lambda: "half of it"):
        del late
        raise RuntimeError("no compiled object yet")
    """
    assert ended(code) == (130, "", "interrupted: half of it\n")


def test_other_exceptions__pass():
    code = """
    with interrupts.taken(), interrupts.telling(lambda: "half of it"):
        raise RuntimeError("not interrupted")
    """
    code, _, err = ended(code)
    assert code == 1
    assert err.endswith("RuntimeError: not interrupted\n")


@pytest.mark.parametrize("times", [1, 2])
def test_held__until_the_end_of_the_block(times):
    code = f"""
    from kvgym.interrupts import held

    with interrupts.taken(), interrupts.telling(lambda: "half of it"):
        try:
            with held():
                for _ in range({times}):
                    ctrl_c()
                print("whole", flush=True)
        finally:
            print("in good order", flush=True)
    """
    out = "whole\n" if times == 2 else "whole\nin good order\n"
    assert ended(code) == (130, out, "interrupted: half of it\n")


@pytest.mark.parametrize("while_writing", ["telling", "another line"])
def test_two__the_second_while_something_is_written(while_writing):
    code = f"""
    class Stream:
        def __init__(self):
            self.inner, self.times = sys.stderr, 0

        def write(self, text):
            self.times += 1
            if self.times == 1:
                ctrl_c()  # the second, while the first is told; or the first, while something else is written
                if "{while_writing}" == "another line":
                    raise AssertionError("the first comes through")
            elif "{while_writing}" == "another line" and self.times == 2:
                raise RuntimeError("reentrant call")
            return self.inner.write(text)

        def __getattr__(self, name):
            return getattr(self.inner, name)

    sys.stderr = Stream()
    with interrupts.taken(), interrupts.telling(lambda: "half of it"):
        if "{while_writing}" == "telling":
            ctrl_c()
        print("never whole", file=sys.stderr)
    """
    code, out, err = ended(code)
    assert (code, out, err.strip()) == (130, "", "interrupted: half of it")


@pytest.mark.parametrize("taken_apart", [False, True])
def test_two__the_second_after_the_end(taken_apart):
    code = f"""
    if {taken_apart}:
        late = Late()  # deleted when Python has given up its handlers
    try:
        with interrupts.taken(), interrupts.telling(lambda: "half of it"):
            ctrl_c()
    except SystemExit:
        if not {taken_apart}:
            ctrl_c()
        raise
    """
    assert ended(code) == (130, "", "interrupted: half of it\n")


def test_none__python_has_its_handler_back():
    code = """
    before = signal.getsignal(signal.SIGINT)
    with interrupts.taken(), interrupts.telling(lambda: "half of it"):
        assert signal.getsignal(signal.SIGINT) is not before
    assert signal.getsignal(signal.SIGINT) is before
    """
    assert ended(code) == (0, "", "")


def test_ignored__stays_ignored_as_in_a_background_job():
    code = """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with interrupts.taken(), interrupts.telling(lambda: "half of it"):
        ctrl_c()
        print("goes on")
    """
    assert ended(code) == (0, "goes on\n", "")
