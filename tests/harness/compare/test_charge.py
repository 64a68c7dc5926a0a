from __future__ import annotations

import pytest

from kvgym.errors import ConfigError
from kvgym.harness.compare.charge import DecisionClock, check_charge


def test_delay__decisions_of_a_router_follow_each_other():
    """Half a second each; requests at 0, 0, 0.25 and 9: done at 0.5, 1, 1.5 and 9.5."""
    clock = DecisionClock(0.5)
    assert [clock.delay_s(0, time_s, 7.0) for time_s in (0.0, 0.0, 0.25, 9.0)] == [0.5, 1.0, 1.25, 0.5]


def test_delay__each_router_has_its_own_decisions():
    clock = DecisionClock(2.0)
    assert [clock.delay_s(router, 0.0, 0.0) for router in (0, 1, 0, 1)] == [2.0, 2.0, 4.0, 4.0]


def test_delay__measured_takes_what_the_decision_took():
    clock = DecisionClock("measured")
    assert [clock.delay_s(0, 1.0, wall_s) for wall_s in (0.25, 0.5)] == [0.25, 0.75]


def test_delay__without_a_charge_is_exactly_none():
    assert DecisionClock(0.0).delay_s(0, 0.1 + 0.2, 5.0) == 0.0


@pytest.mark.parametrize("charge", [-0.1, 3601, float("nan"), float("inf"), True, None, "measurd", [1]])
def test_check__says_what_is_allowed(charge):
    with pytest.raises(ConfigError, match="charge_decision_time must be 'measured' or seconds from 0 to 3600"):
        check_charge(charge)


@pytest.mark.parametrize("charge", [0, 0.001, 3600, "measured"])
def test_check__accepts(charge):
    check_charge(charge)
