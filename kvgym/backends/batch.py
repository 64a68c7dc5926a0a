"""Steps many simulated backends at once: one compiled call per thread instead of some thirty microseconds each."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np

from kvgym.backends.base import Progress
from kvgym.backends.simulated import SimulatedBackend
from kvgym.errors import SimulationError
from kvgym.sim.growth import grow
from kvgym.sim.signals import SIGNALS
from kvgym.sim.state import BROKEN, DECIDE, FINISHED, GROW

_FEW = 8
"""Fewer episodes than this are not worth waking a thread for."""


class SimulatedBatch:
    """Episodes that are routed, run to their next decisions and encoded together.

    The backends stay what they are: between two calls each can be read, stepped or replaced on its own.

    Args:
        backends: one per episode, all `batchable`, of one cluster, policy and observability.
        threads: how many run at the same time; the results do not depend on it.
    """

    def __init__(self, backends: list[SimulatedBackend], threads: int) -> None:
        from kvgym.sim import episodes  # compiled at its first import

        self._api = episodes
        self._backends: list[SimulatedBackend] = list(backends)
        self._rows = episodes.new_rows(len(backends))
        self._verbs = episodes.verbs()
        workers = backends[0].cluster.workers
        self.out = episodes.new_out(len(backends), workers)
        self._seen = [np.zeros((SIGNALS, workers), np.int64) for _ in range(threads)]
        self._pool = ThreadPoolExecutor(threads - 1) if threads > 1 else None
        for i, backend in enumerate(backends):
            self.replace(i, backend)

    def replace(self, i: int, backend: SimulatedBackend) -> None:
        """Let `backend` be episode i from now on."""
        self._backends[i] = backend
        self._api.put(self._rows, i, backend.episode())
        self.out.progress[i] = (*backend.progress(), backend.engine.ended)

    def advance(self, chosen: np.ndarray, route: np.ndarray) -> None:
        """Send the pending requests of the `chosen` episodes to `route`, and run each to its next decision or its end.

        The results are in `out` (see `kvgym.sim.episodes.Out`): rows of other episodes stay as they were.

        Args:
            chosen: numbers of episodes, int64.
            route: worker for each of all episodes, int64 (episodes,); it is overwritten.

        Raises:
            SimulationError: an invariant of an episode is broken.
        """
        while len(chosen):
            self._run(chosen, route)
            codes = self.out.code[chosen]
            chosen = chosen[(codes != DECIDE) & (codes != FINISHED)]
            for i in chosen.tolist():
                self._make_room(i)

    def progress(self) -> tuple[Progress, np.ndarray]:
        """Return where each episode stands: time and integrals, float64 (episodes,), and requests that have ended."""
        columns = self.out.progress.T.copy()
        return Progress(*columns[:-1]), columns[-1].astype(np.int64)

    def close(self) -> None:
        """End the threads."""
        if self._pool is not None:
            self._pool.shutdown()

    def _run(self, chosen: np.ndarray, route: np.ndarray) -> None:
        """Make one compiled call per thread, the first one in this thread."""
        first = self._backends[0]
        common = (self._rows, self._verbs, first.engine.bound, first.exact)

        def call(part: np.ndarray, seen: np.ndarray) -> None:
            self._api.advance(*common, part, route, seen, self.out)

        if self._pool is None or len(chosen) < _FEW:
            call(chosen, self._seen[0])
            return
        parts = np.array_split(chosen, len(self._seen))
        running = [self._pool.submit(call, *each) for each in zip(parts[1:], self._seen[1:], strict=True)]
        call(parts[0], self._seen[0])
        for each in running:
            each.result()

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
