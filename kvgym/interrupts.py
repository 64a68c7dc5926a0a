"""Ctrl-C in the command line: the first ends a command in good order, the second ends it at once."""

from __future__ import annotations

import atexit
import contextlib
import multiprocessing
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NoReturn

EXIT_CODE = 130
"""Exit code after Ctrl-C, as shells give it: 128 + SIGINT."""
_CLEAR_LINE, _SHOW_CURSOR = b"\r\033[2K", b"\033[?25h"
_LATER_S = 0.01
"""A callback or finalizer is over after so long, or it comes once more."""


@contextlib.contextmanager
def held() -> Iterator[None]:
    """Hold Ctrl-C back until the end of the block."""
    if threading.current_thread() is not threading.main_thread():
        yield  # Python interrupts the main thread only
        return
    came: list[int] = []
    handler = signal.signal(signal.SIGINT, lambda number, _: came.append(number))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, handler)
    try:
        for number in came[:1]:
            signal.raise_signal(number)
    finally:
        for number in came[1:2]:
            signal.raise_signal(number)


class Interrupts:
    """Takes the place of Python's own handler of SIGINT for the time of one command.

    The first Ctrl-C is a `KeyboardInterrupt`, so that what has begun is brought to an end. That may come anywhere:
    where Python ignores it (in callbacks and finalizers), it comes again a little later; where it turns into another
    exception, that counts as the interrupt. A second one may come where nothing could catch it any more; hence it
    raises nothing: it kills the processes that this one has started with `multiprocessing`, says what the first would
    have said, and exits.
    """

    _told: Callable[[], str]
    _came: bool  # a first time
    _interrupted: bool  # and was not ignored
    _said: bool  # what is left, or it is being said
    _saying: bool
    _hurried: bool  # a second time, while it was being said

    def __init__(self) -> None:
        self._begin()

    @contextlib.contextmanager
    def taken(self) -> Iterator[None]:
        """Take SIGINT within the block, unless whoever started this process has it ignored or handled otherwise."""
        self._begin()
        before, hook = signal.getsignal(signal.SIGINT), sys.unraisablehook
        ours = before is signal.default_int_handler
        if ours:
            signal.signal(signal.SIGINT, self._on_signal)
            sys.unraisablehook = partial(self._on_unraisable, hook)
        try:
            yield
        except SystemExit as stop:
            if stop.code == EXIT_CODE:
                self.say()  # if no command has: typer ends without a word
            raise
        except BaseException:
            if not self._came:
                raise
            self.say()
            raise SystemExit(EXIT_CODE) from None
        finally:
            if ours and not self._came:  # else the second ends it still
                signal.signal(signal.SIGINT, before)
                sys.unraisablehook = hook

    @contextlib.contextmanager
    def telling(self, told: Callable[[], str]) -> Iterator[None]:
        """Let `told()` say what is left if the block is interrupted."""
        self._told = told
        yield
        self._told = str  # not if it was: `taken` asks for it then

    def say(self) -> None:
        """Say once, in one line on stderr, that this was interrupted and what is left."""
        if self._said:
            return
        self._saying = self._said = True
        try:
            print(self._line(), file=sys.stderr, flush=True)
        except RuntimeError:  # the signal has come while something else was written there
            os.write(2, f"\n{self._line()}\n".encode())
        finally:
            self._saying = False
        if self._hurried:
            self._end()

    def _begin(self) -> None:
        self._told = str
        self._came = self._interrupted = self._said = self._saying = self._hurried = False

    def _line(self) -> str:
        try:
            told = self._told()
        except Exception:  # it may have come in the midst of what this tells about
            told = ""
        return f"interrupted: {told}" if told else "interrupted"

    def _on_signal(self, *_: Any) -> None:
        if not self._interrupted and not self._said:
            self._came = self._interrupted = True
            # The interpreter gives up its handlers before it takes itself apart; a second one would kill it there.
            atexit.register(signal.signal, signal.SIGINT, signal.SIG_IGN)
            raise KeyboardInterrupt
        if self._saying:
            self._hurried = True  # as soon as the line is written
        else:
            self._end()

    def _on_unraisable(self, hook: Callable[[Any], Any], ignored: Any) -> None:
        """Let a Ctrl-C that Python ignores come again, when that callback or finalizer is over."""
        if not issubclass(ignored.exc_type, KeyboardInterrupt):
            hook(ignored)
            return
        self._interrupted = False
        main = threading.main_thread().ident
        again = threading.Timer(_LATER_S, signal.pthread_kill, (main, signal.SIGINT))
        again.daemon = True
        again.start()

    def _end(self) -> NoReturn:
        for worker in multiprocessing.active_children():
            worker.kill()
        terminal = os.isatty(2)  # a progress bar has taken the place of sys.stderr, and has hidden the cursor
        if not self._said:
            os.write(2, (_CLEAR_LINE if terminal else b"") + f"{self._line()}\n".encode())
        if terminal:
            os.write(2, _SHOW_CURSOR)
        os._exit(EXIT_CODE)
