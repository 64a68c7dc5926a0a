from __future__ import annotations

from kvgym.config.schedule import FleetEvent
from kvgym.engine.serving.changes import fleet_changes
from kvgym.engine.state import NOTICE, START, STOP


def changes(detect_s: float, *entries: tuple) -> list[tuple[float, int, int]]:
    return [tuple(change) for change in fleet_changes([FleetEvent(*entry) for entry in entries], detect_s).tolist()]


def test_changes__by_time_then_worker():
    entries = [(4.0, 1, "fail"), (2.0, 0, "join"), (4.0, 0, "fail")]
    assert changes(0.0, *entries) == [
        (2.0, 0, START),
        (4.0, 0, STOP),
        (4.0, 0, NOTICE),
        (4.0, 1, STOP),
        (4.0, 1, NOTICE),
    ]


def test_detection__comes_later_but_before_the_worker_is_back():
    entries = [(1.0, 0, "fail"), (9.0, 0, "recover"), (10.0, 0, "fail"), (11.0, 0, "recover"), (2.0, 1, "fail")]
    assert changes(3.0, *entries) == [
        (1.0, 0, STOP),
        (2.0, 1, STOP),
        (4.0, 0, NOTICE),
        (5.0, 1, NOTICE),
        (9.0, 0, START),
        (10.0, 0, STOP),
        (11.0, 0, NOTICE),
        (11.0, 0, START),
    ]


def test_restart__in_one_instant_keeps_its_order():
    assert changes(1.0, (5.0, 0, "fail"), (5.0, 0, "recover")) == [(5.0, 0, STOP), (5.0, 0, NOTICE), (5.0, 0, START)]


def test_no_schedule__no_changes():
    assert changes(1.0) == []
