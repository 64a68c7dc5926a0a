"""Stops started servers when the process that started them is gone, however it went.

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

GRACE_S = 8.0
"""SGLang takes about six seconds to end on SIGTERM."""


class Watchdog:
    """The parent's end: starts the process that watches."""

    def __init__(self) -> None:
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


def stop_groups(groups: list[int], grace_s: float = GRACE_S) -> None:
    """End process groups: SIGTERM (after SIGCONT, for stopped ones), and SIGKILL for what is left after `grace_s`."""
    for group in groups:
        _signal(group, signal.SIGCONT)
        _signal(group, signal.SIGTERM)
    deadline_s = time.monotonic() + grace_s
    while any(map(alive, groups)) and time.monotonic() < deadline_s:
        time.sleep(0.1)
    for group in groups:
        _signal(group, signal.SIGKILL)


def alive(group: int) -> bool:
    """Return whether a process group has members that are no zombies."""
    for name in os.listdir("/proc"):
        if name.isdigit():
            with contextlib.suppress(OSError), open(f"/proc/{name}/stat", encoding="utf-8") as file:
                state, _, found = file.read().rpartition(")")[2].split()[:3]
                if int(found) == group and state not in "ZX":
                    return True
    return False


def _signal(group: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(group, number)


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
