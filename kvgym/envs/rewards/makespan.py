"""The term is minus the increase of the largest accumulated load of a worker; it sums to minus `makespan_load_s`."""

from __future__ import annotations

import numpy as np

from kvgym.backends.base import Progress
from kvgym.envs.rewards.base import of_integrals


@of_integrals
def makespan(before: Progress, after: Progress, records: np.ndarray) -> float:
    """Return minus the increase of the busiest worker's busy time, seconds.

    Batches make a difference: busy time shrinks when requests wait for each other, so this term pays for queueing. It
    is neither the paper's makespan (`makespan_alone`) nor the time of the last completion (`makespan_completion`).
    """
    return before.busiest_s - after.busiest_s
