"""Ends an interrupted command with one line that says what is left, and exit code 130; all else is Python's Ctrl-C."""

from __future__ import annotations

import contextlib
import signal
import sys
import threading
from collections.abc import Callable, Iterator

EXIT_CODE = 130
"""Exit code after Ctrl-C, as shells give it: 128 + SIGINT."""


class _Told(SystemExit):
    """The end of a command that has said what is left."""


@contextlib.contextmanager
def told(left: Callable[[], str] = str) -> Iterator[None]:
    """Let `left()` say what an interrupt of the block leaves behind; '' for nothing.

    numba turns a Ctrl-C that comes while it compiles into errors of its own, which name it as their context.
    """
    try:
        yield
    except BaseException as error:
        if isinstance(error, _Told) or not _interrupted(error):
            raise
        rest = left()
        print(f"interrupted: {rest}" if rest else "interrupted", file=sys.stderr, flush=True)
        raise _Told(EXIT_CODE) from None


def _interrupted(error: BaseException | None) -> bool:
    return error is not None and (isinstance(error, KeyboardInterrupt) or _interrupted(error.__context__))


@contextlib.contextmanager
def ignored() -> Iterator[None]:
    """Ignore Ctrl-C within a short block that starts processes; they inherit that, and leave it to this one."""
    if threading.current_thread() is not threading.main_thread():
        yield  # Python interrupts the main thread only
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
