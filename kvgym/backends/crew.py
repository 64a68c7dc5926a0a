"""Threads that share short jobs: handing one over costs a fraction of what a `ThreadPoolExecutor` takes for it."""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable, Sequence

Job = Callable[[], None]


def cpus() -> int:
    """Return how many CPUs this process may use, at least 1."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class Crew:
    """The calling thread and some more, for jobs of tens of microseconds that do not hold Python's lock.

    The threads end with `close`, or when nobody holds the crew any more.

    Args:
        threads: how many there are besides the caller's.
    """

    def __init__(self, threads: int) -> None:
        self._posts = [_Post() for _ in range(threads)]
        for post in self._posts:
            threading.Thread(target=post.serve, name="kvgym-crew", daemon=True).start()
        self.close = weakref.finalize(self, _end, self._posts)

    def do(self, jobs: Sequence[Job]) -> None:
        """Do the first job in this thread and each other one in a thread of its own; return when all are done.

        What a job raises is raised here, once all have ended.
        """
        posts = self._posts[: len(jobs) - 1]
        for post, job in zip(posts, jobs[1:], strict=True):
            post.give(job)
        try:
            jobs[0]()
        finally:
            for post in posts:
                post.wait()
        for post in posts:
            post.check()


class _Post:
    """Where one thread gets its jobs; the locks are locked while there is nothing to take."""

    def __init__(self) -> None:
        self._given, self._done = threading.Lock(), threading.Lock()
        self._given.acquire()
        self._done.acquire()
        self._job: Job | None = None
        self._error: BaseException | None = None
        self._owed = False

    def give(self, job: Job | None) -> None:
        """Let the thread do `job`; None: let it end."""
        self.wait()  # after a Ctrl-C in the midst of it
        self._job, self._error, self._owed = job, None, job is not None
        self._given.release()

    def wait(self) -> None:
        """Return when the job that was given last is done."""
        if self._owed:
            self._done.acquire()
            self._owed = False

    def check(self) -> None:
        """Raise what that job has raised."""
        if self._error is not None:
            raise self._error

    def serve(self) -> None:
        """Do jobs until there are no more."""
        while True:
            self._given.acquire()
            if self._job is None:
                return
            try:
                self._job()
            except BaseException as error:
                self._error = error
            self._done.release()


def _end(posts: Sequence[_Post]) -> None:
    for post in posts:
        post.give(None)
