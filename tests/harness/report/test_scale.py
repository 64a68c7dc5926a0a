from __future__ import annotations

import pytest

from kvgym.harness.report.drawing.scale import Scale, label


def test_scale__maps_ends_middle_and_what_is_outside():
    linear, log = Scale(0.0, 10.0, 100.0, 200.0), Scale(0.01, 100.0, 0.0, 40.0, log=True)
    assert [linear(v) for v in (0, 5, 10, -3, 99)] == [100, 150, 200, 100, 200]
    assert [log(v) for v in (0.01, 1.0, 100.0, 1e-9, 1e9)] == pytest.approx([0, 20, 40, 0, 40])


def test_scale__an_empty_range_is_widened():
    for scale in (Scale(2.0, 2.0, 0.0, 1.0, log=True), Scale(0.0, 0.0, 0.0, 1.0)):
        assert scale(scale.low) == 0 and scale(scale.high) == 1 and scale.ticks()


@pytest.mark.parametrize("log", [False, True])
@pytest.mark.parametrize(
    ("low", "high"), [(0.9, 1.1), (1e-6, 1e6), (0.02, 3.5), (1.37, 1.42), (1.0, 1.0), (3.1e-4, 351.0), (99.0, 1234.5)]
)
def test_ticks__few_inside_and_ascending(low, high, log):
    scale = Scale(low, high, 0.0, 1.0, log)
    ticks = scale.ticks(5)
    assert 1 <= len(ticks) <= 5
    assert ticks == sorted(set(ticks))
    slack = 1e-6 * (scale.low if log else scale.high)
    assert all(scale.low - slack <= tick <= scale.high + slack for tick in ticks)
    assert len({label(tick) for tick in ticks}) == len(ticks)


def test_label__is_short():
    assert [label(v) for v in (0.002, 0.5, 20, 1500, 0)] == ["0.002", "0.5", "20", "1,500", "0"]
