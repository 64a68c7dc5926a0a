from __future__ import annotations

import numpy as np
import pytest

from kvgym.errors import WorkloadError
from kvgym.workloads.building.arrivals import open_loop, spread_ticks


@pytest.mark.parametrize("cv", [0.0, 0.5, 1.0, 3.0])
def test_open_loop__mean_and_spread_of_the_gaps(cv):
    times = open_loop(100_001, 8.0, cv, np.random.default_rng(1))
    gaps = np.diff(times)
    assert times[0] == 0
    assert np.mean(gaps) == pytest.approx(1 / 8, rel=0.04)
    assert np.std(gaps) / np.mean(gaps) == pytest.approx(cv, rel=0.04, abs=1e-9)


def test_open_loop__no_rate_is_all_at_once():
    assert open_loop(3, None, 1.0, np.random.default_rng(0)).tolist() == [0, 0, 0]
    assert len(open_loop(0, 5.0, 1.0, np.random.default_rng(0))) == 0


@pytest.mark.parametrize(
    ("rate", "cv"), [(0.0, 1.0), (-1.0, 1.0), (float("nan"), 1.0), (float("inf"), 1.0), (1.0, -0.1)]
)
def test_open_loop__bad_numbers(rate, cv):
    with pytest.raises(WorkloadError, match="rate_rps must be > 0"):
        open_loop(5, rate, cv, np.random.default_rng(0))


def test_spread_ticks__fills_each_tick_and_keeps_the_counts():
    stamps = np.repeat([0.0, 3.0, 5.999, 9.0], 500)
    times = spread_ticks(stamps, 3.0, np.random.default_rng(2))
    assert np.all(np.diff(times) >= 0)
    assert np.histogram(times, [0, 3, 5.999, 9, 12])[0] == pytest.approx([500] * 4, abs=2)
    assert np.median(times[:500]) == pytest.approx(1.5, abs=0.2)
    assert spread_ticks(stamps, 0.0, np.random.default_rng(2)) is stamps
