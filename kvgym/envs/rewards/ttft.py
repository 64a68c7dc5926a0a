"""The term is minus the seconds that requests wait for their first token; it sums to minus the total TTFT."""

from __future__ import annotations

import numpy as np

from kvgym.backends.base import Progress
from kvgym.envs.rewards.base import of_integrals


@of_integrals
def ttft(before: Progress, after: Progress, records: np.ndarray) -> float:
    """Return minus the area under the number of requests without a first token, request-seconds."""
    return before.no_token_s - after.no_token_s
