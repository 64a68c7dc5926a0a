"""The term counts answered requests; it sums to the number of completed requests."""

from __future__ import annotations

import numpy as np

from kvgym.backends.base import Progress
from kvgym.types import DONE


def answered(before: Progress, after: Progress, records: np.ndarray) -> float:
    """Return how many of `records` (RECORD rows that ended in this step) were answered."""
    return float((records["status"] == DONE).sum())
