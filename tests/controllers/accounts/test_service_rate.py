from __future__ import annotations

import numpy as np
import pytest

from controllers.accounts.service_rate import START, ServiceRate


def serve(rate, worker, truth, count, gap_s, rng, order=None, decode_s=0.0):
    """Send `count` requests to a first-come, first-served worker with the true seconds `truth`; then report them."""
    free_s, now_s, sent = 0.0, 0.0, []
    for _ in range(count):
        now_s += gap_s * rng.exponential()
        cached, uncached = rng.uniform(0, 4, 2)
        entry = rate.sent(worker, now_s, cached, uncached)
        free_s = max(free_s, now_s) + truth @ (1.0, cached, uncached)
        sent.append((entry, free_s, free_s + decode_s * rng.random()))
    for entry, first_s, _ in sorted(sent, key=(lambda row: row[2]) if order is None else order):
        rate.ended(worker, entry, first_s)


@pytest.mark.parametrize("gap_s", [0.05, 0.5, 20.0])
def test_speed__is_found_at_any_load(gap_s):
    rate, truth = ServiceRate(2), np.array([0.05, 0.01, 0.2])
    serve(rate, 1, truth, 600, gap_s, np.random.default_rng(0))
    np.testing.assert_allclose(rate.seconds[1], truth, rtol=0.06, atol=0.015)
    typical = np.array([1.0, 2.0, 2.0])
    assert rate.seconds[1] @ typical == pytest.approx(truth @ typical, rel=0.02)
    assert rate.seconds[0].tolist() == rate.seconds[1].tolist(), "who has shown nothing counts as who has"


def test_answers_out_of_order__change_nothing():
    rates = [ServiceRate(1), ServiceRate(1)]
    for rate, decode_s in zip(rates, (0.0, 60.0), strict=True):
        rng = np.random.default_rng(3)
        serve(rate, 0, np.array([0.05, 0.01, 0.2]), 300, 0.3, rng, None if decode_s else (lambda row: row[1]), decode_s)
    np.testing.assert_allclose(rates[0].seconds, rates[1].seconds, rtol=0.05)


def test_batch__requests_with_one_first_token_time_are_one_observation():
    rate = ServiceRate(1)
    for i in range(400):
        entries = [rate.sent(0, 10.0 * i, 0.0, 1.0) for _ in range(3)]
        for entry in entries:
            rate.ended(0, entry, 10.0 * i + 0.9)
    assert rate.seconds[0] @ (3.0, 0.0, 3.0) == pytest.approx(0.9, rel=1e-3)


def test_failed_request__teaches_nothing_and_holds_nobody_up():
    rate = ServiceRate(1)
    lost = rate.sent(0, 0.0, 0.0, 1.0)
    entries = [rate.sent(0, 100.0 * i, 0.0, 1.0) for i in range(1, 400)]
    for i, entry in enumerate(entries, 1):
        rate.ended(0, entry, 100.0 * i + 0.5)
    assert rate.seconds[0].tolist() == list(START)
    rate.ended(0, lost, np.nan)
    assert rate.seconds[0] @ (1.0, 0.0, 1.0) == pytest.approx(0.5, rel=0.03)


def test_stall__counts_as_four_times_the_expectation_at_most():
    rates = [ServiceRate(1), ServiceRate(1)]
    for rate, stall_s in zip(rates, (4 * 0.16, 3600.0), strict=True):
        for sent_s, first_s in ((0.0, stall_s), (9000.0, 9000.1)):
            rate.ended(0, rate.sent(0, sent_s, 0.0, 1.0), first_s)
    np.testing.assert_allclose(rates[0].seconds, rates[1].seconds)


def test_start__is_the_guess_for_everybody():
    assert ServiceRate(3).seconds.tolist() == [list(START)] * 3


def test_unmeasured_worker__counts_as_the_fastest_measured_one():
    rate, rng = ServiceRate(3), np.random.default_rng(0)
    serve(rate, 0, np.array([0.004, 0.001, 0.015]), 60, 0.5, rng)
    serve(rate, 1, np.array([0.016, 0.004, 0.06]), 60, 0.5, rng)
    typical = rate.seconds @ (1.0, 1.0, 1.0)
    assert typical[2] == typical[0] < 0.6 * typical[1]


def test_factor__one_worker_is_slow_from_a_few_answers_while_the_others_stay_as_they_are():
    rate, rng, truth = ServiceRate(3), np.random.default_rng(0), np.array([0.03, 0.0, 0.13])
    for worker in (0, 1):
        serve(rate, worker, truth, 200, 0.5, rng)
    before = rate.seconds.copy()
    serve(rate, 2, 5 * truth, 8, 5.0, rng)
    typical = np.array([1.0, 1.0, 1.0])
    assert rate.seconds[2] @ typical > 2.5 * before[2] @ typical
    assert rate.seconds[:2] @ typical == pytest.approx(before[:2] @ typical, rel=0.15)


def test_wait__a_worker_of_which_little_is_known_is_slow_before_it_answers():
    rate, rng, truth = ServiceRate(3), np.random.default_rng(0), np.array([0.03, 0.0, 0.13])
    serve(rate, 0, truth, 400, 0.5, rng)
    seconds = rate.seconds.copy()
    sent = rate.sent(1, 1000.0, 0.0, 2.0)
    rate.sent(0, 1000.0, 0.0, 2.0)
    rate.wait(1000.5)
    assert rate.seconds.tolist() == seconds.tolist(), "not late yet"
    rate.wait(1030.0)
    assert rate.seconds[1, 2] > 5 * seconds[1, 2]
    assert rate.seconds[[0, 2]].tolist() == seconds[[0, 2]].tolist(), "0 is well known, 2 has nothing in hand"
    rate.ended(1, sent, 1030.0)
    rate.wait(1030.1)
    assert rate.seconds[1].tolist() == seconds[1].tolist(), "one answer is learned when the next one ends it"
