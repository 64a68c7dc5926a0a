"""Stops started servers and routers, and all that they started, when the process that started them is gone.

Run as a process of its own. Its standard input carries one process group per line (``+ID`` to watch, ``-ID`` to
forget); when it ends, because the parent closed it, crashed or was killed, every watched group is stopped.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Collection
from typing import TYPE_CHECKING

from kvgym.errors import MissingDependencyError

if TYPE_CHECKING:
    import psutil

GRACE_S = 8.0
"""SGLang takes about six seconds to end on SIGTERM."""


class Watchdog:
    """The parent's end: starts the process that watches.

    Raises:
        MissingDependencyError: psutil is not installed.
    """

    def __init__(self) -> None:
        members(())  # needs psutil, as the other end will
        command = [sys.executable, "-m", "kvgym.backends.sglang.watchdog"]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, text=True, start_new_session=True)
        self._groups: set[int] = set()

    def watch(self, group: int) -> None:
        """Stop this process group if this process ends."""
        self._groups.add(group)
        self._say(f"+{group}\n")

    def forget(self, group: int) -> None:
        """A process group has ended."""
        self._groups.discard(group)
        self._say(f"-{group}\n")

    def close(self) -> None:
        """End the watch, without stopping anything."""
        with contextlib.suppress(OSError, ValueError):
            self._process.communicate("".join(f"-{group}\n" for group in self._groups))

    def _say(self, line: str) -> None:
        assert self._process.stdin is not None, "it was opened as a pipe"
        self._process.stdin.write(line)
        self._process.stdin.flush()


def stop_groups(groups: Collection[int], grace_s: float = GRACE_S) -> None:
    """End process groups and what they have started: SIGCONT, SIGTERM, and SIGKILL for what is left after `grace_s`.

    Raises:
        MissingDependencyError: psutil is not installed.
    """
    found = members(groups)
    for number in (signal.SIGCONT, signal.SIGTERM):  # a stopped process hears of its end only when it runs on
        _signal(found, number)
    deadline_s = time.monotonic() + grace_s
    while (left := set(filter(_alive, found | members(groups)))) and time.monotonic() < deadline_s:
        time.sleep(0.1)
    _signal(left | members(groups), signal.SIGKILL)


def members(groups: Collection[int]) -> set[psutil.Process]:
    """Return the living processes of these process groups, and those that they have started in other groups.

    Raises:
        MissingDependencyError: psutil is not installed.
    """
    try:
        import psutil
    except ImportError as error:
        raise MissingDependencyError(f"started servers need pip install 'kvgym[live]': {error}") from error
    found = set()
    for process in psutil.process_iter() if groups else ():
        with contextlib.suppress(OSError, psutil.Error):
            if os.getpgid(process.pid) in groups:
                found |= {process, *process.children(recursive=True)}
    return set(filter(_alive, found))


def _alive(process: psutil.Process) -> bool:
    import psutil

    try:
        return process.is_running() and process.status() not in (psutil.STATUS_ZOMBIE, psutil.STATUS_DEAD)
    except psutil.Error:
        return False


def _signal(processes: Collection[psutil.Process], number: int) -> None:
    import psutil

    for process in processes:
        with contextlib.suppress(psutil.Error):  # it may have ended, and its number may be another's by now
            process.send_signal(number)


def main() -> None:
    """Watch until standard input ends, then stop every group."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's affair
    groups: list[int] = []
    for line in sys.stdin:
        group = int(line[1:])
        if line[0] == "+":
            groups.append(group)
        else:
            groups.remove(group)
    stop_groups(groups)


if __name__ == "__main__":
    main()
