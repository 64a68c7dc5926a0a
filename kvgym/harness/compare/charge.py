"""Charges the time that decisions take to the simulated clock: each router decides one request at a time."""

from __future__ import annotations

import math
from typing import Literal

from kvgym.errors import ConfigError

Charge = float | Literal["measured"]
"""Seconds per decision, or ``measured``: the wall time of each `act`, so no two runs are the same."""
MOST_S = 3600.0
"""Upper limit of a constant: far beyond use, but what exceeds it is a slip of the pen."""


class DecisionClock:
    """When the routers get to the decisions that wait for them.

    A router is a single server: a decision starts when its request is there and the previous decision is done. The
    request counts as in flight from its arrival (this is when the controller is asked, and what it sees is of then) and
    reaches the worker's queue when its decision is done.

    Args:
        charge: seconds per decision, or ``measured``.
    """

    def __init__(self, charge: Charge) -> None:
        self.charge = charge
        self._free_s: dict[int, float] = {}  # router -> when its last decision is done

    def delay_s(self, router: int, time_s: float, wall_s: float) -> float:
        """Return how long the request that reaches `router` at `time_s` waits for the end of its own decision, seconds.

        `wall_s` is how long that decision really took; it counts only if the charge is ``measured``.
        """
        if self.charge == 0.0:
            return 0.0
        start_s = max(time_s, self._free_s.get(router, 0.0))
        done_s = self._free_s[router] = start_s + (wall_s if isinstance(self.charge, str) else self.charge)
        return done_s - time_s


def check_charge(charge: Charge) -> None:
    """Raise a `ConfigError` unless `charge` is ``measured`` or a number of seconds from 0 to `MOST_S`."""
    if charge == "measured":
        return
    number = isinstance(charge, int | float) and not isinstance(charge, bool)
    if not number or not math.isfinite(charge) or not 0 <= charge <= MOST_S:
        raise ConfigError(
            f"charge_decision_time must be 'measured' or seconds from 0 to {MOST_S:g} per decision, got {charge!r}"
        )
