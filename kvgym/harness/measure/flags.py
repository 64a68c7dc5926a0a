"""Marks what needs a second look: nearly all requests on one worker while another idles, or a growing backlog."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

MOST_SHARE = 0.9
LEAST_IDLE = 0.5


class Concentration(NamedTuple):
    """How unevenly one run used its fleet."""

    share: float  # of the requests that were sent anywhere, on the most chosen worker
    idle: float  # share of the makespan that the least busy worker made no step in

    @property
    def suspicious(self) -> bool:
        """Whether one worker got more than 90 % while another idled more than half of the time."""
        return self.share > MOST_SHARE and self.idle > LEAST_IDLE


def concentration(records: np.ndarray, totals: Mapping[str, Any]) -> Concentration:
    """Return the concentration of a run from its RECORD rows and the backend's `stats()`."""
    sent = np.bincount(records["worker"][records["worker"] >= 0], minlength=1)
    makespan_s = float(totals["makespan_s"])
    idle = 1.0 - min(totals["busy_s"]) / makespan_s if makespan_s > 0 else 0.0
    return Concentration(float(sent.max() / max(sent.sum(), 1)), idle)


def concentration_flags(runs: Mapping[int, Concentration], reason: str) -> list[str]:
    """Return at most one flag for a cell.

    Args:
        runs: seed -> concentration.
        reason: why its router may do that (`concentrates` of the controller); empty: it should not.
    """
    found = {seed: run for seed, run in runs.items() if run.suspicious}
    if not found:
        return []
    worst = max(found.values())
    text = f"{worst.share:.1%} of the requests went to one worker while another idled {worst.idle:.0%} of the time"
    which = f"seed{'s' * (len(found) > 1)} {', '.join(map(str, found))}"
    return [f"{text} ({which}); {f'its rule allows that: {reason}' if reason else 'nothing in its rule says so'}"]


def saturation_flags(saturated: Mapping[int, float | None]) -> list[str]:
    """Return at most one flag for a cell; `saturated` maps seed -> 1, 0 or none, as in `stats.METRICS`."""
    found = [str(seed) for seed, value in saturated.items() if value]
    if not found:
        return []
    which = f"seed{'s' * (len(found) > 1)} {', '.join(found)}"
    return [f"saturated ({which}): the backlog grew, so latencies depend on how long the run is"]
