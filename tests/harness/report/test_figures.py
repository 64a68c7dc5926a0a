from __future__ import annotations

import re

import numpy as np
import pytest

from kvgym.harness.report.curves import LEVELS
from kvgym.harness.report.drawing.figures import WIDTH, Row, bars, cdf, forest, over_time, shares
from kvgym.harness.report.drawing.markup import html


def inside(element) -> bool:
    """Return whether all that is drawn lies in the picture."""
    svg = element.find("svg")
    _, _, width, height = map(float, svg.get("viewBox").split())
    for item in svg:
        for x, y in re.findall(r"M(-?[\d.]+) (-?[\d.]+)", item.get("d") or ""):
            if not (0 <= float(x) <= width and 0 <= float(y) <= height):
                return False
        for name, most in (("x", width), ("cx", width), ("y", height), ("cy", height)):
            if item.get(name) is not None and not 0 <= float(item.get(name)) <= most:
                return False
    return True


ROWS = [
    Row("a", "lru", 1.0, 1.0, 1.0, base=True),
    Row("a", "rlt", 0.5, 0.25, 1.0),
    Row("b <i>", "lru", 200.0, 1e-9, 1e12),
    Row("b <i>", "a very long name of a policy", None, None, None),
    Row("c", "lru", 0.031),
]


def test_forest__says_what_it_shows():
    made = forest("Median latency", "below 1 is better", ROWS)
    text = "".join(made.itertext())
    for said in (
        "a + rlt 0.50 (0.25-1.00)",
        "baseline",
        "b <i> + lru 200 (1e-09-1000000000000)",
        "a very long…",
        "0.031",
    ):
        assert said in text
    assert inside(made) and "<i>" not in html(made)
    classes = [item.get("class") for item in made.find("svg")]
    assert (classes.count("dot"), classes.count("hollow"), classes.count("interval"), classes.count("group")) == (
        3,
        1,
        3,
        3,
    )


def test_forest__nothing_known():
    assert inside(forest("t", "", [Row("a", "lru", None)]))


def test_bars__value_range_and_published():
    made = bars("Hit rate", [Row("a", "lru", 0.5, 0.4, 0.6, mark=0.25), Row("a", "rlt", None)])
    (bar,) = made.iter("rect")
    assert float(bar.get("width")) == pytest.approx((WIDTH - 42 - 80) / 2)
    assert "a + lru 50.0%; a + rlt -" in "".join(made.itertext()) and inside(made)


def test_shares__pieces_in_order_and_the_rest_as_one():
    made = shares("s", [("a", "lru", np.array([0.75, 0.25, 0.0]))])
    widths = [float(item.get("width")) for item in made.iter("rect")]
    assert widths == pytest.approx([0.75 * (WIDTH - 94), 0.25 * (WIDTH - 94)], abs=0.06)
    assert "busiest worker 75%, least busy 0%" in "".join(made.itertext())
    many = shares("s", [("a", "lru", np.full(1000, 0.001))])
    assert len(list(many.iter("rect"))) == 16 and inside(many)


def test_cdf__curves_differ_by_more_than_colour():
    seconds = np.linspace(0.1, 10.0, len(LEVELS))
    made = cdf("lbgr", [("lru", seconds), ("rlt", seconds / 2)], seconds * 2, np.array([seconds / 2, seconds * 2]))
    assert {"line c0", "line c1", "line base", "band"} <= {item.get("class") for item in made.find("svg")}
    assert re.search(r"lru: half within [\d.]+ s, 99 % within [\d.]+ s; rlt: half", made.find("svg/desc").text)
    assert inside(made)


def test_cdf__zero_seconds_have_a_place_on_a_logarithmic_axis():
    assert inside(cdf("x", [("lru", np.zeros(len(LEVELS)))], None, np.zeros((2, len(LEVELS)))))


def test_over_time__a_strip_per_worker_and_the_busiest_of_many():
    made = over_time("Waiting requests", np.array([[0.0, 2.0], [0.0, 0.0]]), 100.0, share=False)
    assert "worker 0: at most 2; worker 1: at most 0" in "".join(made.itertext()) and inside(made)
    many = over_time("KV cache in use", np.arange(100.0)[:, None] / 100 * np.ones(4), 0.0, share=True)
    text = "".join(many.itertext())
    assert "(8 of 100 workers)" in text and "w99" in text and "w91" not in text and inside(many)
