"""Comparisons of eviction policies: bounds, the oracle, and the sentence on what the choice made."""

from __future__ import annotations

import csv
import io
import re
from pathlib import Path
from typing import Any

import pytest

from kvgym.errors import ConfigError
from kvgym.harness.compare.evaluate import evaluate
from kvgym.harness.report.console import make_console
from kvgym.harness.report.stakes import eviction_lines
from kvgym.harness.report.tables import print_comparison
from kvgym.harness.tools.comparison import compare

GSP = {"source": "gsp", "groups": 8, "prompts_per_group": 6, "lens": [64, 128, 256], "rate_rps": None, "clients": 1}
GRID: dict[str, Any] = {
    "name": "evictions",
    "workloads": [{"use": GSP, "name": "gsp"}],
    "clusters": [
        {"use": {"workers": 1, "capacity_tokens": 700}, "name": "small"},
        {"use": {"workers": 1, "capacity_tokens": 30000}, "name": "ample"},
    ],
    "routing": ["round_robin"],
    "eviction": ["lru", "mru", "belady"],
    "bounds": True,
    "seeds": 2,
}


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> Any:
    return compare(GRID, tmp_path_factory.mktemp("bounded") / "out", jobs=1)


def test_bounds__every_policy_has_a_share_of_the_possible(done: Any) -> None:
    for cell in done.summary.cells:
        rate, bound, share = (cell.mean(name) for name in ("hit_rate", "hit_bound", "possible_share"))
        assert 0 <= rate <= bound <= 0.5 and share == pytest.approx(rate / bound)
    shares = {cell.labels[1:]: cell.mean("possible_share") for cell in done.summary.cells}
    assert shares["small", "round_robin", "belady"] > 0.98
    assert shares["small", "round_robin", "lru"] < 0.9
    assert shares["ample", "round_robin", "mru"] > 0.98


def test_bounds__stand_in_the_report_and_the_files(done: Any) -> None:
    text, page = io.StringIO(), (done.folder / "report.html").read_text()
    print_comparison(make_console(text), done.summary)
    for shown in (text.getvalue(), (done.folder / "report.md").read_text(), page):
        assert "belady (oracle)" in shown and "of possible %" in shown and "hit gain, points" in shown
        assert "Under round_robin the choice of the eviction policy does not matter: all 2 hit" in shown
        assert "Under round_robin eviction matters: mru hits most, " in shown
    rows = list(csv.DictReader((done.folder / "summary.csv").read_text().splitlines()))
    assert all(float(row["hit_bound"]) >= float(row["hit_rate"]) for row in rows)


def test_bounds__hit_gain_is_paired_with_the_baseline(done: Any) -> None:
    base, mru, _ = done.summary.cells[:3]
    assert base.hit_gain == (0.0, 0.0, 0.0)
    gain, low, high = mru.hit_gain
    assert low < gain < high and gain == pytest.approx(mru.mean("hit_rate") - base.mean("hit_rate"))


def test_bounds__not_asked_for(tmp_path: Path) -> None:
    grid = {**GRID, "eviction": ["lru", "mru"], "bounds": False, "seeds": 1}
    cells = compare(grid, tmp_path / "out", jobs=1).summary.cells
    assert {cell.mean("hit_bound") for cell in cells} == {None}
    assert "bound" not in (tmp_path / "out" / "report.md").read_text()
    (small,), (ample,) = eviction_lines(cells[:2]), eviction_lines(cells[2:])
    assert re.fullmatch(r"Under round_robin eviction matters: mru hits most, [\d.]+%; lru least, [\d.]+%\.", small)
    assert ample.startswith("Under round_robin the choice of the eviction policy does not matter: all 2 hit")
    assert "possible" not in ample


def test_eviction_lines__need_two_policies_beside_the_oracle(done: Any) -> None:
    assert eviction_lines([cell for cell in done.summary.cells[:3] if cell.labels[3] != "mru"]) == []


def test_evaluate__keeps_the_bounds() -> None:
    cells = evaluate("round_robin", GRID, seeds=1).cells
    assert all(cell.mean("hit_bound") for cell in cells)
    assert [cell.oracle for cell in cells] == [cell.labels[3] == "belady" for cell in cells]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"signals": {"routers": 3}}, "needs one router, got 3"),
        (
            {"clusters": [{"use": {"workers": 1, "network_s": {"a": 0.0, "b": 2.0}}, "name": "far"}]},
            "bounds need clients at the same distance from each worker, the regions of far",
        ),
        ({"bounds": False}, "eviction policy 'belady' sees the future; set bounds: true"),
        ({"warmup_s": 5.0}, "warmup_s: 0"),
        (
            {
                "clusters": [
                    {"use": {"workers": 2, "schedule": [{"time_s": 1, "worker": 0, "event": "fail"}]}, "name": "two"}
                ]
            },
            "two is not",
        ),
        ({"clusters": [{"use": {"workers": 2}, "name": "two"}]}, "needs one worker"),
        ({"workloads": [{"use": {**GSP, "clients": 2}, "name": "gsp"}]}, "order is known beforehand"),
    ],
)
def test_bounds__refused_before_anything_is_written(tmp_path: Path, changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        compare({**GRID, **changes}, tmp_path / "out", jobs=1)
    assert not (tmp_path / "out").exists()
