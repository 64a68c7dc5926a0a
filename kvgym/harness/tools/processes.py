"""A pool of processes for runs: spawned, ended with their parent, and deaf to Ctrl-C, which this process answers."""

from __future__ import annotations

import multiprocessing
import os
import threading
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager

from kvgym.errors import SimulationError


@contextmanager
def process_pool(processes: int) -> Iterator[ProcessPoolExecutor]:
    """Give a pool; at the end runs that have begun are finished and the others dropped.

    Submit within `kvgym.interrupts.ignored`, so that the processes start deaf to Ctrl-C.

    Raises:
        SimulationError: one of them died.
    """
    # "spawn": forked copies of a process that runs numba's or Arrow's threads may hang.
    pool = ProcessPoolExecutor(processes, multiprocessing.get_context("spawn"), initializer=_start_worker)
    try:
        yield pool
    except BrokenProcessPool as error:
        raise SimulationError(f"a worker process died ({error}); out of memory? try --jobs 1") from error
    finally:
        _shut(pool)


def _shut(pool: ProcessPoolExecutor) -> None:
    """Finish the runs that have begun, which are kept, and drop the others; Ctrl-C meanwhile ends them at once."""
    try:
        pool.shutdown(cancel_futures=True)
    except KeyboardInterrupt:
        for worker in multiprocessing.active_children():
            worker.kill()
        raise


def _start_worker() -> None:
    """End with the parent: one that was killed could not tell its workers."""
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    assert parent is not None, "only processes of the pool come here"
    parent.join()
    os._exit(1)
