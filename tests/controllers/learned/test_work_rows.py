from __future__ import annotations

import numpy as np
import pytest

from controllers.learned.work_rows import WORK_FEATURES, WorkRows, work_space

NAMES = [feature.name for feature in WORK_FEATURES]


def test_rows__tell_work_waiting_and_the_score_in_seconds(make):
    env = make(2).unwrapped
    env.reset(seed=0)
    tracker, first = WorkRows(env.fleet), env.decision
    rows = tracker.rows(first)
    assert rows.dtype == np.float32 and work_space(2).contains(rows)
    cost_s = float(rows[0, NAMES.index("cost")])
    tracker.send(first, 1)
    env.step(1)
    later = dict(zip(NAMES, tracker.rows(env.decision).T, strict=True))
    gap_s = env.decision.time_s - first.time_s
    assert later["inflight"].tolist() == [0.0, 1.0]
    assert later["held"].tolist() == pytest.approx([0.0, cost_s])
    assert later["work"].tolist() == pytest.approx([0.0, max(0.0, cost_s - gap_s)], abs=1e-6)
    assert later["oldest"].tolist() == pytest.approx([0.0, gap_s])
    assert later["score"] == pytest.approx(later["work"] + 0.25 * later["held"] + 8 * later["miss"], rel=1e-5)


def test_rows__everything_is_cut_at_the_bound(make):
    env = make(2).unwrapped
    env.reset(seed=0)
    tracker = WorkRows(env.fleet)
    tracker._model.load.held_s[:] = 1e9
    assert work_space(2).contains(tracker.rows(env.decision))
