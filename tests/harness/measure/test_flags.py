from __future__ import annotations

import numpy as np
import pytest

from kvgym.harness.measure.flags import Concentration, concentration, concentration_flags, saturation_flags
from kvgym.types import RECORD


@pytest.mark.parametrize(
    ("workers", "busy_s", "suspicious"),
    [
        ([0] * 20, [9.0, 0.0], True),
        ([0] * 19 + [1], [9.0, 1.0], True),
        ([0] * 18 + [1] * 2, [9.0, 1.0], False),  # exactly 90 %
        ([0] * 19 + [1], [9.0, 6.0], False),  # few requests, but long ones
        ([0, 1] * 10, [1.0, 0.0], False),
        ([0] * 20, [10.0], False),  # nobody else is there
        ([-1] * 20, [0.0, 0.0], False),  # nothing was sent anywhere
    ],
)
def test_concentration__needs_one_busy_and_one_idle_worker(workers, busy_s, suspicious):
    records = np.zeros(20, RECORD)
    records["worker"] = workers
    assert concentration(records, {"busy_s": busy_s, "makespan_s": 10.0}).suspicious is suspicious


def test_flags__name_the_worst_seed_and_the_reason():
    runs = {0: Concentration(0.95, 0.8), 1: Concentration(0.5, 0.9), 7: Concentration(0.99, 0.9)}
    (flag,) = concentration_flags(runs, "")
    assert flag.startswith("99.0% of the requests went to one worker while another idled 90% of the time (seeds 0, 7)")
    assert flag.endswith("nothing in its rule says so")
    (flag,) = concentration_flags(runs, "it follows the prefix")
    assert flag.endswith("its rule allows that: it follows the prefix")
    assert concentration_flags({1: runs[1]}, "") == []


def test_saturation__names_the_seeds():
    assert saturation_flags({0: 1.0, 1: 0.0, 5: 1.0, 6: None}) == [
        "saturated (seeds 0, 5): the backlog grew, so latencies depend on how long the run is"
    ]
    assert saturation_flags({0: 0.0, 1: None}) == []
