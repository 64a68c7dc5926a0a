"""Workers join, fail and recover by a cluster's schedule; its entries are checked here."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from kvgym.errors import ConfigError

_FROM = {"join": "absent", "fail": "up", "recover": "down"}
"""What a worker must be for each event."""
_TO = {"join": "up", "fail": "down", "recover": "up"}


@dataclass(frozen=True)
class FleetEvent:
    """One worker joins the fleet, fails (its cache is lost, so are the requests on it) or comes back empty."""

    time_s: float
    worker: int
    event: Literal["join", "fail", "recover"]  # a worker whose first event is join is absent before


def check_schedule(schedule: Sequence[FleetEvent], workers: int) -> None:
    """Check every entry by itself and the order of each worker's entries by time.

    Raises:
        ConfigError: names the first entry that is wrong.
    """
    for i, entry in enumerate(schedule):
        if not (math.isfinite(entry.time_s) and entry.time_s >= 0):
            raise ConfigError(f"schedule.{i}: time_s must be a finite number >= 0, got {entry.time_s}")
        if not 0 <= entry.worker < workers:
            raise ConfigError(f"schedule.{i}: worker must be 0..{workers - 1}, got {entry.worker}")
        if entry.event not in _FROM:
            raise ConfigError(f"schedule.{i}: event must be one of {', '.join(_FROM)}, got {entry.event!r}")
    states: dict[int, str] = {}
    for i in sorted(range(len(schedule)), key=lambda i: schedule[i].time_s):
        entry = schedule[i]
        state = states.get(entry.worker, "absent" if entry.event == "join" else "up")
        if state != _FROM[entry.event]:
            raise ConfigError(
                f"schedule.{i}: worker {entry.worker} is {state} at {entry.time_s:g} s and can't {entry.event}; "
                f"that takes a worker that is {_FROM[entry.event]}"
            )
        states[entry.worker] = _TO[entry.event]


def up_windows(schedule: Sequence[FleetEvent], worker: int) -> list[tuple[float, float]]:
    """Return (from, to) in seconds of each time in which a worker is up, ascending; the last may end at infinity."""
    own = sorted((entry for entry in schedule if entry.worker == worker), key=lambda entry: entry.time_s)
    since: float | None = None if own and own[0].event == "join" else -math.inf
    windows = []
    for entry in own:
        if entry.event == "fail" and since is not None:
            windows.append((since, entry.time_s))
            since = None
        elif entry.event != "fail":
            since = entry.time_s
    return windows if since is None else [*windows, (since, math.inf)]
