"""Minus the seconds that have passed: over an episode, the time from its first decision to the last completion."""

from __future__ import annotations

import numpy as np

from kvgym.backends.base import Progress
from kvgym.envs.rewards.base import of_integrals


@of_integrals
def makespan_completion(before: Progress, after: Progress, records: np.ndarray) -> float:
    """Return minus the seconds of the step; they sum to minus `makespan_s`, counted from the first decision.

    All that a choice changes is how long the fleet takes to drain after the last arrival, so with open-loop arrivals
    the steps before the last one only count time. Where clients wait for answers (sessions, closed loops), the
    arrivals themselves come sooner if the fleet is faster.
    """
    return before.time_s - after.time_s
