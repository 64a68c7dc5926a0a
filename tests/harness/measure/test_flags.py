from __future__ import annotations

import math

import numpy as np
import pytest

from kvgym.config.schedule import FleetEvent, up_windows
from kvgym.harness.measure.flags import Concentration, Signs, flags, saturation_flags, signs
from kvgym.types import RECORD

METRICS = {"capped": None, "capped_tokens": None, "saturated": None}
QUIET = Signs(Concentration(0.0, 0.0), (), 0.0, 0.0, 0.0, 0.0, None)


def look(workers, busy_s, schedule=(), arrival_s=0.0, waits_s=0.0, end_s=10.0):
    records = np.zeros(len(workers), RECORD)
    records["worker"], records["arrival_s"] = workers, arrival_s
    records["admitted_s"] = records["arrival_s"] + waits_s
    return signs(records, {"busy_s": busy_s, "makespan_s": end_s}, METRICS, schedule)


@pytest.mark.parametrize(
    ("workers", "busy_s", "suspicious"),
    [
        ([0] * 20, [9.0, 0.0], True),
        ([0] * 19 + [1], [9.0, 1.0], True),
        ([0] * 18 + [1] * 2, [9.0, 1.0], False),  # exactly 90 %
        ([0] * 19 + [1], [9.0, 6.0], False),  # few requests, but long ones
        ([0, 1] * 10, [1.0, 0.0], False),
        ([0] * 20, [10.0], False),  # nobody else is there
        ([0] * 20, [1.0], False),  # and this one idles by itself
        ([0] * 9, [9.0, 0.0], False),  # too few to say
        ([-1] * 20, [0.0, 0.0], False),  # nothing was sent anywhere
    ],
)
def test_concentration__needs_one_busy_and_one_idle_worker(workers, busy_s, suspicious):
    assert look(workers, busy_s).concentration.suspicious is suspicious


def test_concentration__counts_from_the_first_arrival():
    """One worker is busy for all of the 10 s in which there is something to do; the trace's clock shows 1,000."""
    late = look([0] * 19 + [1], [9.0, 6.0], arrival_s=1000.0, end_s=1010.0).concentration
    assert late == look([0] * 19 + [1], [9.0, 6.0]).concentration and late.idle == pytest.approx(0.4)


@pytest.mark.parametrize("event", ["fail", "join"])
def test_concentration__a_worker_that_is_not_there_is_no_choice(event):
    """Worker 1 is up for one second of ten; what comes in the others has to go to worker 0."""
    schedule = (FleetEvent(1.0 if event == "fail" else 9.0, 1, event),)
    times_s = np.repeat(np.arange(10.0), 20)
    here = (times_s < 1) if event == "fail" else (times_s >= 9)
    shared = np.where(here, np.arange(200) % 2, 0)
    seen = look(shared, [9.0, 0.2], schedule, times_s)
    assert not seen.concentration.suspicious and seen.concentration.share == 0.5
    assert look(np.zeros(200, int), [9.0, 0.0], schedule, times_s).concentration.suspicious
    assert look(shared, [9.0, 0.2], (), times_s).concentration.suspicious


def test_unused__a_worker_without_requests_while_others_queue():
    arrival_s = np.arange(20.0)
    queueing = look([0] * 20, [25.0, 0.0, 0.0], (), arrival_s, 1.5, 30.0)
    assert (queueing.unused, queueing.queued) == ((1, 2), pytest.approx(0.95))
    assert look([0] * 20, [5.0, 0.0], (), arrival_s, 0.5, 30.0).unused == ()  # nobody waited
    assert look([0] * 19 + [1], [5.0, 1.0], (), arrival_s, 1.5, 30.0).unused == ()
    busy = look([0] * 20, [28.0, 0.0], (), arrival_s, 0.5, 30.0)  # nobody waited, but one did all the work
    assert (busy.unused, busy.busy) == ((1,), pytest.approx(28 / 30))
    down = (FleetEvent(40.0, 2, "join"),)
    assert look([0] * 20, [25.0, 0.0, 0.0], down, arrival_s, 1.5, 30.0).unused == (1,)


def test_up_windows__by_hand():
    schedule = (FleetEvent(5.0, 0, "recover"), FleetEvent(2.0, 0, "fail"), FleetEvent(3.0, 1, "join"))
    assert up_windows(schedule, 0) == [(-math.inf, 2.0), (5.0, math.inf)]
    assert up_windows(schedule, 1) == [(3.0, math.inf)] and up_windows(schedule, 2) == [(-math.inf, math.inf)]
    assert up_windows(schedule[1:2], 0) == [(-math.inf, 2.0)]


def test_flags__name_the_worst_seed_and_the_reason():
    shares = {0: Concentration(0.95, 0.8), 1: Concentration(0.5, 0.9), 7: Concentration(0.99, 0.9)}
    runs = {seed: QUIET._replace(concentration=share) for seed, share in shares.items()}
    (flag,) = flags(runs, "")
    assert flag.startswith("99.0% of the requests went to one worker while another idled 90% of the time (seeds 0, 7)")
    assert flag.endswith("nothing in its rule says so")
    (flag,) = flags(runs, "it follows the prefix")
    assert flag.endswith("its rule allows that: it follows the prefix")
    assert flags({1: runs[1]}, "") == []


def test_flags__unused_workers_and_cut_answers():
    runs = {3: QUIET._replace(unused=(1, 4), queued=0.5), 4: QUIET._replace(capped=2.0, capped_tokens=20004.0)}
    unused, cut = flags(runs, "")
    assert (
        unused
        == "2 workers got nothing while 50% of the requests queued at others (seed 3); nothing in its rule says so"
    )
    assert cut.startswith("2 answers were cut at the KV capacity and lack 20,004 tokens (seed 4)")


def test_flags__an_unused_worker_beside_a_busy_one():
    (flag,) = flags({0: QUIET._replace(unused=(1,), busy=0.97)}, "")
    assert flag.startswith("1 worker got nothing while another was busy 97% of the time (seed 0)")


def test_saturation__names_the_seeds():
    assert saturation_flags({0: 1.0, 1: 0.0, 5: 1.0, 6: None}) == [
        "saturated (seeds 0, 5): the backlog grew, so latencies depend on how long the run is"
    ]
    assert saturation_flags({0: 0.0, 1: None}) == []
