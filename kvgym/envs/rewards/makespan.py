"""The term is minus the increase of the largest accumulated load of a worker; it sums to minus `makespan_load_s`."""

from __future__ import annotations

import numpy as np

from kvgym.backends.base import Progress
from kvgym.envs.rewards.base import of_integrals


@of_integrals
def makespan(before: Progress, after: Progress, records: np.ndarray) -> float:
    """Return minus the increase of the busiest worker's busy time, seconds (not the time of the last completion)."""
    return before.busiest_s - after.busiest_s
