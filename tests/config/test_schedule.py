from __future__ import annotations

import pytest

from kvgym.config.cluster import ClusterConfig
from kvgym.config.options import build, to_plain
from kvgym.config.schedule import FleetEvent
from kvgym.errors import ConfigError

FAIL, BACK = {"time_s": 5, "worker": 1, "event": "fail"}, {"time_s": 9, "worker": 1, "event": "recover"}


def cluster(*entries, **fields):
    return build(ClusterConfig, {"workers": 2, "schedule": list(entries), **fields}, "cluster")


def test_schedule__is_read_in_any_order_and_written_back():
    join = {"time_s": 0.5, "worker": 0, "event": "join"}
    made = cluster(BACK, join, FAIL)
    assert made.schedule[0] == FleetEvent(9.0, 1, "recover")
    assert build(ClusterConfig, to_plain(made)) == made


@pytest.mark.parametrize(
    ("entries", "message"),
    [
        ([FAIL, {**BACK, "worker": 2}], r"cluster: schedule\.1: worker must be 0\.\.1, got 2"),
        ([{**FAIL, "worker": -1}], r"schedule\.0: worker must be 0\.\.1, got -1"),
        ([{**FAIL, "time_s": -1}], r"schedule\.0: time_s must be a finite number >= 0, got -1\.0"),
        ([{**FAIL, "time_s": float("nan")}], r"cluster\.schedule\.0\.time_s must be a finite number, got nan"),
        ([{**FAIL, "event": "die"}], r"schedule\.0\.event must be one of 'join', 'fail', 'recover'"),
        ([{**FAIL, "when": 1}], r"unknown key 'when' in cluster\.schedule\.0"),
        ([{"time_s": 1, "event": "fail"}], r"cluster\.schedule\.0 lacks 'worker'"),
        ([BACK], r"schedule\.0: worker 1 is up at 9 s and can't recover; that takes a worker that is down"),
        ([FAIL, {**FAIL, "time_s": 6}], r"schedule\.1: worker 1 is down at 6 s and can't fail"),
        ([FAIL, {**FAIL, "time_s": 6, "event": "join"}], r"schedule\.1: worker 1 is down at 6 s and can't join"),
        ([{**FAIL, "event": "join"}, BACK], r"schedule\.1: worker 1 is up at 9 s and can't recover"),
        ([BACK, FAIL, {**FAIL, "time_s": 7}], r"schedule\.2: worker 1 is down at 7 s"),
    ],
)
def test_schedule__mistakes_name_the_entry(entries, message):
    with pytest.raises(ConfigError, match=message):
        cluster(*entries)


@pytest.mark.parametrize("entries", [{"time_s": 1}, "fail", [[1, 0, "fail"]]])
def test_schedule__must_be_a_list_of_maps(entries):
    with pytest.raises(ConfigError, match=r"cluster\.schedule"):
        build(ClusterConfig, {"schedule": entries}, "cluster")


def test_schedule__is_checked_when_made_in_python_too():
    for entry in (FleetEvent(float("inf"), 0, "fail"), FleetEvent(1.0, 0, "crash")):
        with pytest.raises(ConfigError, match=r"schedule\.0"):
            ClusterConfig(schedule=(entry,))
