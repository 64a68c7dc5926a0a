import numpy as np

from kvgym.harness.measure.clients import seen_by_client
from kvgym.types import DONE, FAILED, RECORD


def rows(count):
    records = np.zeros(count, RECORD)
    records["request"] = np.arange(count)
    records["first_token_s"], records["finish_s"] = 1.0, 4.0
    records["status"] = DONE
    return records


def test_late_text__this_share_is_timed_at_the_last_token():
    records = rows(20_000)
    seen = seen_by_client(records, 0.6)
    assert abs((seen["first_token_s"] == 4.0).mean() - 0.6) < 0.01
    assert (records["first_token_s"] == 1.0).all()


def test_late_text__the_same_requests_in_any_order_and_none_that_failed():
    records = rows(1000)
    records["status"][::2] = FAILED
    shuffled = records[np.random.default_rng(0).permutation(1000)]
    first, second = seen_by_client(records, 0.5), np.sort(seen_by_client(shuffled, 0.5), order="request")
    assert np.array_equal(first, second)
    assert (first["first_token_s"][::2] == 1.0).all()


def test_no_late_text__nothing_is_copied():
    records = rows(3)
    assert seen_by_client(records, 0.0) is records
