"""A backend runs to the next decision, applies a route and hands out what has finished."""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol

import numpy as np

from kvgym.types import Decision, FleetSpec


class Progress(NamedTuple):
    """Where an episode stands: its time and the integrals that rewards are made of, all in seconds from 0."""

    time_s: float
    in_system_s: float  # integral of the number of requests that have arrived and not yet ended
    no_token_s: float  # integral of the number of requests that have arrived and have no first token
    busiest_s: float  # largest accumulated step time of a worker
    alone_s: float = 0.0  # largest sum, over a worker's answered requests, of what each would have cost it alone


class Snapshot(NamedTuple):
    """What a fleet really looks like at this moment, whatever a router sees of it; arrays have shape (workers,)."""

    requests: int  # of the workload
    routed: int  # sent to a worker so far
    inflight: np.ndarray  # requests sent and not yet answered
    running: np.ndarray
    queued: np.ndarray
    kv_used_tokens: np.ndarray  # resident + private
    kv_capacity_tokens: np.ndarray
    resident: np.ndarray  # (pairs, 3): worker, top-level prefix (a forest node), tokens cached; ascending, none of 0
    prefix: int  # top-level prefix of the forest node that was asked for


class Load(NamedTuple):
    """What each worker carries now: the truth, whatever a router may see of it. Shapes (workers,)."""

    kv_use: np.ndarray  # KV tokens held / KV tokens of the worker, float64
    retractions: np.ndarray  # requests pushed back to the queue so far, int64


class Backend(Protocol):
    """A fleet that serves one workload.

    Attributes:
        deterministic: the same seed and actions give the same records.
        forkable: `fork` works.
    """

    deterministic: bool
    forkable: bool

    @property
    def spec(self) -> FleetSpec:
        """What a controller is told at reset."""
        ...

    def run_to_decision(self) -> Decision | None:
        """Run until a request needs a worker; None when every request has ended."""
        ...

    def apply(self, worker: int, delay_s: float = 0.0) -> None:
        """Send the waiting request to `worker`.

        It counts as in flight at once. `delay_s` is what the choice itself takes in simulated time: the request reaches
        the worker's queue that much later. A backend in real time has spent it already and ignores it.
        """
        ...

    def progress(self) -> Progress:
        """Return the time and the integrals up to now."""
        ...

    def load(self) -> Load:
        """Return what each worker carries now."""
        ...

    def completions(self) -> np.ndarray:
        """Return RECORD rows that have ended since the last call."""
        ...

    def records(self) -> np.ndarray:
        """Return RECORD rows of everything that has ended, in order of completion."""
        ...

    def stats(self) -> dict[str, Any]:
        """Return per-worker counters and totals (see `kvgym.backends.simulated`)."""
        ...

    def snapshot(self, node: int) -> Snapshot:
        """Return what the fleet looks like now, and the top-level prefix of forest node `node`."""
        ...

    def close(self) -> None:
        """Give up what the episode holds outside this process; nothing in a simulation."""
        ...

    def fork(self) -> Backend:
        """Return an independent copy at the same point with the same random numbers (only if `forkable`)."""
        ...
