"""The term is minus the seconds that requests spend in the system; it sums to minus the total latency."""

from __future__ import annotations

import numpy as np

from kvgym.backends.base import Progress
from kvgym.envs.rewards.base import of_integrals


@of_integrals
def latency(before: Progress, after: Progress, records: np.ndarray) -> float:
    """Return minus the area under the number of requests in the system, request-seconds."""
    return before.in_system_s - after.in_system_s
