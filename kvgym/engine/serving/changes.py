"""A cluster's schedule becomes the engine's list of changes: who stops, what is noticed when, who starts."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from kvgym.config.schedule import FleetEvent
from kvgym.engine.state import CHANGE, NOTICE, START, STOP


def fleet_changes(schedule: Sequence[FleetEvent], detect_s: float) -> np.ndarray:
    """Return CHANGE records in the order in which they happen (by time, worker, place in the schedule).

    A failure is noticed `detect_s` seconds later, but at the latest when the worker is back.

    Args:
        schedule: entries that `kvgym.config.schedule.check_schedule` accepts, in any order.
        detect_s: seconds until a failure is noticed.
    """
    changes: list[tuple[float, int, int]] = []
    back_s: dict[int, float] = {}
    for entry in sorted(schedule, key=lambda entry: entry.time_s)[::-1]:  # equal times keep their order, reversed
        if entry.event == "fail":
            noticed_s = min(entry.time_s + detect_s, back_s.get(entry.worker, np.inf))
            changes += [(noticed_s, entry.worker, NOTICE), (entry.time_s, entry.worker, STOP)]
        else:
            changes.append((entry.time_s, entry.worker, START))
        back_s[entry.worker] = entry.time_s
    # Stable again: a notice at the time of the recovery stays before it.
    changes = sorted(changes[::-1], key=lambda change: change[:2])
    return np.array(changes, CHANGE)
