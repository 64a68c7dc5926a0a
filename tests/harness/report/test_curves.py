from __future__ import annotations

import numpy as np
import pytest

from kvgym.harness.measure.samples import Samples
from kvgym.harness.report.curves import POINTS, kv_over_time, queue_depth
from kvgym.types import RECORD


def test_queue_depth__by_hand():
    records = np.zeros(4, RECORD)
    records["worker"] = [0, 0, 1, 1]
    records["arrival_s"] = [0.0, 24.0, 48.0, 0.0]
    records["admitted_s"] = [48.0, 48.0, -1.0, 0.0]  # the third is never admitted and ends at 72 s
    records["finish_s"] = [96.0, 96.0, 72.0, 96.0]
    depth = queue_depth(records, workers=3, end_s=96.0)
    quarters = depth.reshape(3, 4, POINTS // 4)
    assert quarters.mean(axis=2) == pytest.approx(np.array([[1, 2, 0, 0], [0, 0, 1, 0], [0, 0, 0, 0]]))
    assert quarters.std(axis=2) == pytest.approx(0, abs=1e-9)


def test_queue_depth__keeps_short_waits_by_their_mean():
    records = np.zeros(1, RECORD)
    records["arrival_s"], records["admitted_s"], records["finish_s"] = 10.0, 10.5, 20.0
    assert queue_depth(records, 1, 96.0).sum() == pytest.approx(0.5)  # one second a slot


def test_kv_over_time__between_samples():
    samples = Samples(np.array([0.0, 96.0]), np.array([[0.0, 1.0], [1.0, 1.0]], np.float32), np.zeros((2, 2), int))
    use = kv_over_time(samples, 96.0)
    assert use.shape == (2, POINTS)
    assert use[0] == pytest.approx((np.arange(POINTS) + 0.5) / POINTS)
    assert (use[1] == 1.0).all()
