"""This prefix forest keeps its token ids in a file: for logs with more tokens than memory."""

from __future__ import annotations

import mmap
import os
from pathlib import Path

import numpy as np

from kvgym.forest.forest import Forest

_MOST_GROWTH_IDS = 1 << 25


class DiskForest(Forest):
    """A forest at page size 1 that keeps ids, eight bytes each, in a file; nodes stay in memory (about 80 bytes each).

    The file is mapped, so the operating system keeps in memory what is in use and takes the rest back when it needs to.

    Args:
        file: path of the file, made anew; whoever owns the folder removes it.
        chars_per_token: see Forest.
    """

    def __init__(self, file: Path, chars_per_token: float) -> None:
        super().__init__(1, 1, chars_per_token)
        self._file = file
        self._file.touch()

    def _grown_pool(self, need: int) -> np.ndarray:
        first = not self._file.stat().st_size
        # nothing is copied, so the file need not double: it would take twice the disk space of a large log
        size = max(need, len(self._pool) + min(len(self._pool), _MOST_GROWTH_IDS))
        with self._file.open("r+b") as file:
            _allocate(file.fileno(), size * np.dtype(np.int64).itemsize)
            grown = np.frombuffer(mmap.mmap(file.fileno(), 0), np.int64)
        if first:
            grown[: len(self._pool)] = self._pool
        return grown


def _allocate(descriptor: int, size: int) -> None:
    """Make the file `size` bytes long; with the space for it where the system can say that there is none."""
    if hasattr(os, "posix_fallocate"):
        os.posix_fallocate(descriptor, 0, size)  # writing to a hole of a full disk through a mapping would be fatal
    else:
        os.ftruncate(descriptor, size)
