"""The backend contract: run to the next decision, apply a route, hand out what has finished."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np

from kvgym.types import Decision, FleetSpec


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

    def apply(self, worker: int) -> None:
        """Send the waiting request to `worker`."""
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
