from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from kvgym.errors import ResultsError, UnknownNameError
from kvgym.harness.compare.store import Store
from kvgym.harness.measure.waterfall import PARTS
from kvgym.harness.report.console import make_console
from kvgym.harness.report.explained import Explained, explained_rows, moved_lines
from kvgym.harness.report.tables import print_comparison
from kvgym.harness.tools.comparison import compare
from kvgym.harness.tools.explain import explain_folder, explain_run, print_answer

GSP = {"source": "gsp", "groups": 6, "prompts_per_group": 6, "lens": [64, 128], "rate_rps": 20.0}
GRID: dict[str, Any] = {
    "name": "why",
    "workloads": [{"use": GSP, "name": "gsp"}],
    "clusters": [{"use": {"workers": 3, "capacity_tokens": 800}, "name": "three"}],
    "routing": ["round_robin", "cache_aware"],
    "eviction": ["lru"],
    "seeds": 2,
}
QUIET = Console(quiet=True)


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> Any:
    return compare(GRID, tmp_path_factory.mktemp("why") / "out", jobs=1)


def forget(folder: Path) -> None:
    """Make the runs those of an older kvgym, which says nothing about prompt tokens."""
    for path in folder.rglob("*.json"):
        facts = json.loads(path.read_text())
        if "totals" in facts:
            facts["totals"].pop("waterfall")
            path.write_text(json.dumps(facts))


def shown(answer: Any) -> str:
    text = io.StringIO()
    print_answer(make_console(text), answer)
    return text.getvalue()


def test_explain__a_folder_needs_no_run(done, monkeypatch):
    monkeypatch.setattr("kvgym.harness.tools.explain.run", None)
    answer = explain_folder(done.folder, None, QUIET)
    assert [reasons.labels[2] for reasons in answer.cells] == ["round_robin", "cache_aware"]
    for reasons, cell in zip(answer.cells, done.summary.cells, strict=True):
        tokens = [run["hit"] for run in reasons.seeds.values()]
        assert tokens == [row["hit_tokens"] for row in cell.per_seed]
        assert reasons.plain["prompt_tokens"] == sum(reasons.plain["tokens"][name] for name in PARTS)
    text = shown(answer)
    assert "cache_aware + lru against round_robin + lru, points: " in text and "other worker" in text


def test_explain__an_older_folder_is_run_again(done, tmp_path):
    older = compare(GRID, tmp_path / "out", jobs=1).folder
    forget(older)
    text = io.StringIO()
    answer = explain_folder(older, None, make_console(text))
    assert answer.cells == explain_folder(done.folder, None, QUIET).cells
    assert text.getvalue().count("run again to be explained") == 1


def test_explain__an_older_folder_that_cannot_be_repeated(tmp_path):
    folder = compare({**GRID, "seeds": 1}, tmp_path / "out", jobs=1).folder
    forget(folder)
    load = Store.load

    def other(self: Store, cell: Any, seed: int) -> Any:
        records, facts = load(self, cell, seed)
        records["finish_s"] += 1.0
        return records, facts

    with pytest.MonkeyPatch.context() as patch, pytest.raises(ResultsError, match="other records than the folder"):
        patch.setattr(Store, "load", other)
        explain_folder(folder, None, QUIET)


def test_explain__one_cell_by_its_name(done):
    (reasons,) = explain_folder(done.folder, "gsp/three/cache_aware/lru", QUIET).cells
    assert reasons.labels[2] == "cache_aware"
    with pytest.raises(UnknownNameError, match="did you mean 'gsp/three/cache_aware/lru'"):
        explain_folder(done.folder, "gsp/three/cache_aware/lr", QUIET)


def test_explain__one_run_as_a_waterfall():
    answer = explain_run("gsp_small", "l40x4", "round_robin", "lru", 0, ["cluster.capacity_tokens=20000"])
    text = shown(answer)
    for sentence in PARTS.values():
        assert sentence in text
    assert "prompt tokens" in text and "believed by the router" in text


def test_report__has_the_section(done):
    text = io.StringIO()
    print_comparison(make_console(text), done.summary)
    for report in (text.getvalue(), (done.folder / "report.md").read_text(), (done.folder / "report.html").read_text()):
        assert "Where the prompt tokens went" in report and "other worker %" in report and "believed %" in report
    assert "cache_aware + lru against round_robin + lru, points" in (done.folder / "report.md").read_text()
    shares = json.loads((done.folder / "summary.json").read_text())["cells"][0]["waterfall"]
    assert sum(shares[name] for name in PARTS) == pytest.approx(1.0)


def test_rows__parts_that_are_nowhere_have_no_column():
    shares = {name: (0.0, 0.0, 0.0) for name in PARTS} | {"new": (0.5, 0.5, 0.5), "hit": (0.5, 0.4, 0.6)}
    moved = shares | {"lost": (0.1, 0.1, 0.1), "hit": (0.4, 0.4, 0.4)}
    cells = [Explained(("a", "lru"), shares), Explained(("b", "lru"), moved), Explained(("live", "lru"), {})]
    header, rows = explained_rows(cells)
    assert header[2:] == ["never seen %", "other worker %", "evicted %", "failed worker %", "hit %"]
    assert rows[0][2:] == ["50.00", "0.00", "0.00", "0.00", "50.00 [40.00-60.00]"] and rows[2][2:] == ["-"] * 5
    (line,) = moved_lines(cells, ("a", "lru"))
    assert line == "b + lru against a + lru, points: failed worker +10.0, hit -10.0."
    assert explained_rows(cells[2:]) is None
