"""Ctrl-C in the command line: the first ends a command in good order, the second ends it at once."""

from __future__ import annotations

import atexit
import contextlib
import multiprocessing
import os
import signal
import sys
from collections.abc import Callable, Iterator
from typing import Any, NoReturn

EXIT_CODE = 130
"""Exit code after Ctrl-C, as shells give it: 128 + SIGINT."""
_SHOW_CURSOR = b"\033[?25h"


class Interrupts:
    """Takes the place of Python's own handler of SIGINT for the time of one command.

    The first Ctrl-C is a `KeyboardInterrupt`, so that what has begun is brought to an end. That may come anywhere, and
    so may a second one, also where nothing could catch it any more; hence the second raises nothing: it kills the
    processes that this one has started with `multiprocessing`, says what the first would have said, and exits.
    """

    _told: Callable[[], str]
    _interrupted: bool  # once
    _said: bool  # what is left, or it is being said
    _saying: bool
    _hurried: bool  # a second time, while it was being said

    def __init__(self) -> None:
        self._begin()

    @contextlib.contextmanager
    def taken(self) -> Iterator[None]:
        """Take SIGINT within the block, unless whoever started this process has it ignored or handled otherwise."""
        self._begin()
        before = signal.getsignal(signal.SIGINT)
        if before is not signal.default_int_handler:
            yield
            return
        signal.signal(signal.SIGINT, self._on_signal)
        try:
            yield
        finally:
            if not self._interrupted:  # else the second ends it still
                signal.signal(signal.SIGINT, before)

    @contextlib.contextmanager
    def telling(self, told: Callable[[], str]) -> Iterator[None]:
        """Say `told()`, what is left of an interrupted block, and turn the Ctrl-C into exit code 130."""
        self._told = told
        try:
            yield
        except KeyboardInterrupt:
            self.say()
            raise SystemExit(EXIT_CODE) from None
        self._told = str

    def say(self) -> None:
        """Say once, in one line on stderr, that this was interrupted and what is left."""
        if self._said:
            return
        self._saying = self._said = True
        try:
            told = self._told()
            _write_line(f"interrupted: {told}" if told else "interrupted")
        finally:
            self._saying = False
        if self._hurried:
            self._end()

    def _begin(self) -> None:
        self._told = str
        self._interrupted = self._said = self._saying = self._hurried = False

    def _on_signal(self, *_: Any) -> None:
        if not self._interrupted:
            self._interrupted = True
            # The interpreter gives up its handlers before it takes itself apart; a second one would kill it there.
            atexit.register(signal.signal, signal.SIGINT, signal.SIG_IGN)
            raise KeyboardInterrupt
        if self._saying:
            self._hurried = True  # as soon as the line is written
        else:
            self._end()

    def _end(self) -> NoReturn:
        for worker in multiprocessing.active_children():
            worker.kill()
        self.say()
        if sys.stderr.isatty():
            os.write(sys.stderr.fileno(), _SHOW_CURSOR)  # a progress bar has hidden it
        os._exit(EXIT_CODE)


def _write_line(line: str) -> None:
    try:
        print(line, file=sys.stderr, flush=True)
    except RuntimeError:  # the signal has come while something else was written there
        os.write(sys.stderr.fileno(), f"\n{line}\n".encode())
