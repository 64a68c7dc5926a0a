"""The term counts prompt tokens that caches have saved answered requests; it sums to `hit_tokens` of the run."""

from __future__ import annotations

import numpy as np

from kvgym.backends.base import Progress
from kvgym.types import DONE


def cache(before: Progress, after: Progress, records: np.ndarray) -> float:
    """Return the prompt tokens of `records` that were found in a cache, in tokens (a weight of 0.001: thousands)."""
    return float(records["hit_tokens"][records["status"] == DONE].sum())
