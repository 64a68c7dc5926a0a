"""The term counts requests answered within a service level objective; it sums to their number."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from kvgym.backends.base import Progress
from kvgym.config.slo import SLO


@dataclass(frozen=True)
class GoodRequests(SLO):
    """The term `slo`; its options are the limits ``ttft_s``, ``tpot_s`` and ``latency_s``, at least one."""

    def __call__(self, before: Progress, after: Progress, records: np.ndarray) -> float:
        """Return the number of `records` that keep every limit, requests."""
        return float(np.count_nonzero(self.met(records)))
