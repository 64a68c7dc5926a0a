"""A fleet that did not keep up saturates: more of the arrivals became backlog than chance explains."""

from __future__ import annotations

import numpy as np

SLICES = 10
"""Equal slices of the measured window."""
LEAST_REQUESTS = 100
"""Arrivals in the window under which nothing is said."""
LEAST_GROWTH = 0.02
"""Backlog growth from which a run counts as saturated."""
_T_99 = 2.8965  # one-sided 1 % point of Student's t with SLICES - 2 degrees of freedom


def backlog_growth(records: np.ndarray, start_s: float) -> tuple[float | None, float | None]:
    """Return the growth of the backlog over the measured window, and 1.0 or 0.0: whether the run was saturated.

    The window goes from `start_s` to the last arrival of a session's first request (later turns follow answers, and
    their rate falls when no new sessions come). n_1 .. n_10 are the mean numbers of requests in the system in its ten
    equal slices. With b the slope of the least-squares line through them, per slice,

        growth = 10 * b / (requests that arrived in the window),

    which is the share of the arrivals that the fleet fell behind: about 1 - 1/load where the load exceeds 1, about 0
    where the fleet keeps up or a closed loop holds requests back, negative where a backlog shrinks. The run is
    saturated if growth > 0.02 and b is significantly above 0: b / (its standard error) > 2.8965 (t-test, one-sided,
    1 %, 8 degrees of freedom). Both None: fewer than 100 arrivals in the window, or all at once.

    Measured on the default GSP, four L40 workers, seeds 0 to 3: at 2 requests/s -0.0003 to 0.0001; at 12/s (the knee)
    -0.014 to 0.012 for lbgr_release and 0.028 to 0.065 for round robin + LRU; at 14/s round robin 0.118 to 0.186.

    Args:
        records: RECORD rows of all requests that have ended, any order.
        start_s: begin of the window, seconds.
    """
    arrival_s, finish_s = records["arrival_s"], records["finish_s"]
    end_s = float(arrival_s[records["turn"] == 0].max(initial=start_s))
    arrivals = int(np.count_nonzero((arrival_s >= start_s) & (arrival_s <= end_s)))
    if arrivals < LEAST_REQUESTS or end_s <= start_s:
        return None, None
    edges_s = np.linspace(start_s, end_s, SLICES + 1)
    area_s = np.array([(np.minimum(finish_s, edge) - np.minimum(arrival_s, edge)).sum() for edge in edges_s])
    mean_in_system = np.diff(area_s) / np.diff(edges_s)
    x = np.arange(SLICES) - (SLICES - 1) / 2
    spread = float((x * x).sum())
    slope = float((x * mean_in_system).sum()) / spread  # sums, not dot products: BLAS differs among machines
    rest = mean_in_system - mean_in_system.mean() - slope * x
    error = float(np.sqrt((rest * rest).sum() / (SLICES - 2) / spread))
    growth = SLICES * slope / arrivals
    return growth, float(growth > LEAST_GROWTH and slope > _T_99 * error)
