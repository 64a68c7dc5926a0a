"""Minus the increase of the paper's makespan: the largest sum, over a worker's requests, of what each costs alone."""

from __future__ import annotations

import numpy as np

from kvgym.backends.base import Progress
from kvgym.envs.rewards.base import of_integrals


@of_integrals
def makespan_alone(before: Progress, after: Progress, records: np.ndarray) -> float:
    """Return minus the increase of max_i P_i, seconds (paper section 1, arXiv 2601.18999).

    P_i is the sum of the service costs of the answered requests of worker i, each as if the worker served it alone,
    with the tokens that it really found in the cache. So nothing is gained by letting requests wait for a larger batch,
    as it is with `makespan`; what is left are hits, and even shares. A cost is added when the request's end is seen.
    """
    return before.alone_s - after.alone_s
