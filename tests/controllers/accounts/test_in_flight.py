from __future__ import annotations

import pytest

from controllers.accounts.in_flight import InFlight
from kvgym.types import DONE, FAILED, REJECTED


def test_drain__one_second_per_second_and_never_back(fleet):
    load = InFlight(fleet(3))
    load.work_s[:] = [3.0, 1.0, 0.5]
    for time_s in (0.75, 0.5):
        load.drain(time_s)
        assert load.work_s.tolist() == [2.25, 0.25, 0.0]


def test_drain__with_rho_once_per_period(fleet):
    load = InFlight(fleet(2), rho=0.5, delta_t_s=0.02)
    load.work_s[:] = [8.0, 4.0]
    for time_s, expected in ((0.019, [8.0, 4.0]), (0.02, [4.0, 2.0]), (0.06, [1.0, 0.5])):
        load.drain(time_s)
        assert load.work_s.tolist() == pytest.approx(expected)


def test_observe__hands_back_the_notes_of_the_done_ones(fleet, ask, finished):
    load = InFlight(fleet(2))
    for request, worker in enumerate((0, 1, 1, 0)):
        load.begin(ask(2, [0, 0], request=request))
        load.send(ask(2, [0, 0], request=request), worker, 0.0, 0.2, 1.0, note=f"note {request}")
    assert load.inflight.tolist() == load.held_s.tolist() == [2, 2]
    done = load.observe(finished((2, DONE, 0.5), (0, FAILED, 0.6), (1, REJECTED, 0.7), (9, DONE, 0.8), (3, DONE, 0.9)))
    assert [(sent.note, sent.worker, sent.time_s, end_s) for sent, end_s in done] == [
        ("note 2", 1, 0.0, 0.5),
        ("note 3", 0, 0.0, 0.9),
    ]
    assert load.inflight.tolist() == load.held_s.tolist() == load.work_s.tolist() == [0, 0]
    assert load.observe(finished((2, DONE, 1.0))) == []
