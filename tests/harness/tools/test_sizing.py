from __future__ import annotations

import io
from typing import Any

import pytest

from kvgym.errors import ConfigError
from kvgym.harness.compare.evaluate import evaluate
from kvgym.harness.report.console import make_console
from kvgym.harness.report.sizing_report import print_sizing
from kvgym.harness.tools.sizing import size_fleets

GSP = {"source": "gsp", "groups": 8, "prompts_per_group": 10, "lens": [1024], "rate_rps": 30.0}
GRID: dict[str, Any] = {
    "name": "sizes",
    "workloads": [{"use": GSP, "name": "gsp"}],
    "clusters": [{"use": {"workers": 2, "capacity_tokens": 4000}, "name": "small"}],
    "routing": ["round_robin", "cache_aware"],
    "eviction": ["lru"],
    "slo": {"latency_s": 0.8},
    "seeds": 3,
}


@pytest.fixture(scope="module")
def sizing() -> Any:
    return size_fleets(GRID, most=32, jobs=1)


def goodput(pair: tuple[str, ...], workers: int, rate_rps: float = 30.0) -> float:
    """Return the mean share that keeps the objective, by way of a comparison."""
    fleet = {"use": {"workers": workers, "capacity_tokens": 4000}, "name": "fleet"}
    grid = {**GRID, "workloads": [{"use": {**GSP, "rate_rps": rate_rps}, "name": "gsp"}], "clusters": [fleet]}
    cells = evaluate("cache_aware", {**grid, "routing": ["round_robin"]}).cells
    return next(cell.mean("goodput_share") for cell in cells if cell.labels[2:] == pair)


def test_size_fleets__keeps_it_and_one_worker_less_does_not(sizing):
    assert [each.labels[2] for each in sizing.sized] == ["cache_aware", "round_robin"]
    for each in sizing.sized:
        needed = int(each.workers.value)
        assert 1 < needed < 32
        kept = goodput(each.labels[2:], needed)
        assert kept >= 0.95 > goodput(each.labels[2:], needed - 1)
        assert each.at["goodput_share"] == pytest.approx(kept)
        assert each.workers.low <= needed and (each.workers.high is None or each.workers.high >= needed)
        assert len(each.workers.each) == 3


def test_size_fleets__the_second_best_costs_workers_seed_by_seed(sizing):
    best, second = sizing.sized
    gaps = [b - a for a, b in zip(best.workers.each, second.workers.each, strict=True)]
    assert best.extra is None and second.extra[0] == pytest.approx(sum(gaps) / 3)


def test_size_fleets__the_load_that_the_fleet_keeps(sizing):
    for each in sizing.sized:
        value, low, high = each.rps
        assert 0 < low <= value <= high < 30.0  # two workers are too few for the load as it is
        assert goodput(each.labels[2:], 2, value) >= 0.94 > goodput(each.labels[2:], 2, 2 * value)


def test_size_fleets__jobs_do_not_matter(sizing):
    again = size_fleets({**GRID, "routing": ["cache_aware"]}, most=32, jobs=2, load=False)
    assert again.sized[0].workers == sizing.sized[0].workers and again.sized[0].rps is None


def test_print_sizing__says_what_follows(sizing):
    text = io.StringIO()
    print_sizing(make_console(text), sizing)
    shown = text.getvalue()
    best, second = (int(each.workers.value) for each in sizing.sized)
    assert "gsp on workers of small: latency <= 0.8 s for 0.95 of the requests" in shown
    assert f"Smallest fleet: {best} workers, cache_aware + lru" in shown
    assert f"Second best: round_robin + lru, {second} workers; it costs {second - best:+d} workers" in shown


def test_size_fleets__nothing_is_enough():
    none = size_fleets({**GRID, "slo": {"latency_s": 1e-6}, "seeds": 1}, most=3, jobs=1)
    text = io.StringIO()
    print_sizing(make_console(text), none)
    assert "No pair keeps the objective with up to 3 workers." in text.getvalue()
    assert none.sized[0].plain["workers"]["value"] is None and none.sized[0].rps == (None, None, None)


@pytest.mark.parametrize(
    ("changes", "options", "message"),
    [
        ({"slo": None}, {}, "a plan needs an objective"),
        ({}, {"share": 1.5}, "share must be above 0 and at most 1, got 1.5"),
        (
            {"clusters": [{"use": {"workers": 2, "speed": [1.0, 2.0]}, "name": "c"}]},
            {},
            "speed can't list one for each",
        ),
        (
            {
                "clusters": [
                    {"use": {"workers": 2, "schedule": [{"time_s": 1, "worker": 0, "event": "fail"}]}, "name": "c"}
                ]
            },
            {},
            "schedule can't list one for each",
        ),
        (
            {"workloads": [{"use": {**GSP, "rate_rps": None, "clients": 2}, "name": "w"}]},
            {},
            "w has no rate: it is a closed loop, or all comes at once",
        ),
        ({"charge_decision_time": "measured"}, {}, "repeats runs to the last bit"),
    ],
)
def test_size_fleets__what_cannot_be_planned(changes, options, message):
    with pytest.raises(ConfigError, match=message):
        size_fleets({**GRID, **changes}, jobs=1, **options)
