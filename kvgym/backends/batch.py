"""Steps many simulated backends at once: one compiled call per thread instead of some thirty microseconds each."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor, wait

import numpy as np

from kvgym.backends.base import Progress
from kvgym.backends.simulated import SimulatedBackend
from kvgym.engine.growth import grow
from kvgym.engine.serving.readings import SIGNALS
from kvgym.engine.state import BROKEN, DECIDE, FINISHED, GROW
from kvgym.errors import SimulationError


def cpus() -> int:
    """Return how many CPUs this process may use, at least 1."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class SimulatedBatch:
    """Episodes that are routed, run to their next decisions and encoded together.

    The backends stay what they are: between two calls each can be read, stepped or replaced on its own.

    Args:
        backends: one per episode, all `batchable`, of one cluster, policy and observability.
        threads: how many run at the same time; the results do not depend on it.
    """

    def __init__(self, backends: list[SimulatedBackend], threads: int) -> None:
        from kvgym.engine.entry import episodes

        self._api = episodes
        self._backends: list[SimulatedBackend] = list(backends)
        self._rows = episodes.new_rows(len(backends))
        self._verbs = episodes.verbs()
        workers = backends[0].cluster.workers
        self.out = episodes.new_out(len(backends), workers)
        self._seen = [np.zeros((SIGNALS, workers), np.int64) for _ in range(threads)]
        self._pool = ThreadPoolExecutor(threads, "kvgym-batch")
        self._all = np.array_split(np.arange(len(backends)), threads)
        for i, backend in enumerate(backends):
            self.replace(i, backend)

    def replace(self, i: int, backend: SimulatedBackend) -> None:
        """Let `backend` be episode i from now on."""
        self._backends[i] = backend
        self._api.put(self._rows, i, backend.episode())
        self.out.progress[i] = (*backend.progress(), backend.engine.ended)

    def advance(self, route: np.ndarray) -> None:
        """Send the pending request of every episode to its `route`, and run each to its next decision or its end.

        The results are in `out` (see `kvgym.engine.entry.episodes.Out`).

        Args:
            route: worker for each of the episodes, int64 (episodes,); it is overwritten.

        Raises:
            SimulationError: an invariant of an episode is broken.
        """
        self._run(self._all, route)
        while (waiting := (self.out.code != DECIDE) & (self.out.code != FINISHED)).any():
            chosen = np.flatnonzero(waiting)
            for i in chosen.tolist():
                self._make_room(i)
            self._run([chosen], route)

    def progress(self) -> tuple[Progress, np.ndarray]:
        """Return where each episode stands: time and integrals, float64 (episodes,), and requests that have ended."""
        columns = self.out.progress.T.copy()
        return Progress(*columns[:-1]), columns[-1].astype(np.int64)

    def close(self) -> None:
        """End the threads."""
        self._pool.shutdown()

    def _run(self, parts: list[np.ndarray], route: np.ndarray) -> None:
        """Make one compiled call for each part (numbers of episodes, int64), in a thread each, the first in this."""
        first = self._backends[0]
        common = (self._rows, self._verbs, first.engine.bound, first.exact)
        calls = [(*common, part, route, seen, self.out) for part, seen in zip(parts, self._seen, strict=False)]
        others = [self._pool.submit(self._api.advance, *call) for call in calls[1:]]
        try:
            self._api.advance(*calls[0])
        finally:
            wait(others)  # after a Ctrl-C, too: the next call must not meet them
        for other in others:
            other.result()

    def _make_room(self, i: int) -> None:
        """Enlarge what has become too small in episode i."""
        backend, code = self._backends[i], self.out.code[i]
        if code == BROKEN:
            raise SimulationError(backend.engine.post_mortem())
        if code == GROW:
            backend.engine.cache = grow(backend.engine.cache)
        else:
            backend.grow_memory()
        self.replace(i, backend)
