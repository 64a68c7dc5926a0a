from __future__ import annotations

import csv
import json

import numpy as np
import pytest
from rich.console import Console

import kvgym.harness.tools.comparison as module
from controllers.routing.round_robin import RoundRobin
from kvgym.errors import ConfigError, KVGymError, ResultsError
from kvgym.harness.report.tables import table_rows
from kvgym.harness.tools.comparison import compare
from kvgym.records import read_records

GSP = {"source": "gsp", "groups": 8, "prompts_per_group": 4, "lens": [64, 128, 256]}
GRID = {
    "name": "tiny",
    "workloads": [{"use": GSP, "name": "gsp"}],
    "clusters": [{"use": {"workers": 2, "capacity_tokens": 1000}, "name": "two"}],
    "routing": ["round_robin", "random"],
    "eviction": ["lru", "rlt"],
    "seeds": 2,
}


@pytest.fixture
def runs(monkeypatch):
    """Count the runs; setting ``runs.stop_at`` interrupts the run with that number."""

    class Runs:
        count = 0
        stop_at = None

        def __call__(self, cell, seed, real=module.run, **options):
            if self.count == self.stop_at:
                raise KeyboardInterrupt
            self.count += 1
            return real(cell, seed, **options)

    counter = Runs()
    monkeypatch.setattr(module, "run", counter)
    return counter


def files(folder):
    return sorted(path.name for path in folder.rglob("*") if path.is_file())


def summaries(folder):
    return (folder / "summary.csv").read_bytes(), (folder / "summary.json").read_bytes()


def test_compare__writes_every_file(tmp_path):
    done = compare(GRID, tmp_path / "out", jobs=1)
    assert done.folder == tmp_path / "out"
    top = {path.name for path in done.folder.iterdir()}
    tables = {"manifest.json", "report.html", "report.md", "summary.csv", "summary.json", "timing.csv"}
    assert top == {".lock", "records", "samples", *tables}
    for part in ("records", "samples"):
        assert len(list((done.folder / part).glob("*.parquet"))) == 8
    rows = list(csv.DictReader((done.folder / "summary.csv").read_text().splitlines()))
    assert (rows[0]["routing"], rows[0]["eviction"], rows[0]["seeds"]) == ("round_robin", "lru", "2")
    assert float(rows[0]["completed"]) == 32
    assert float(rows[0]["p50_latency_s_min"]) <= float(rows[0]["p50_latency_s"]) <= float(rows[0]["p50_latency_s_max"])
    assert float(rows[0]["p50_latency_s_ratio"]) == 1.0
    manifest = json.loads((done.folder / "manifest.json").read_text())
    assert manifest["config"]["workloads"][0]["use"] == GSP
    assert manifest["cells"][0]["plain"]["workload"]["rate_rps"] == 12.0
    assert manifest["versions"]["numpy"] == np.__version__


def test_compare__jobs_and_reruns_give_the_same_bytes(tmp_path):
    compare(GRID, tmp_path / "one", jobs=1)
    compare(GRID, tmp_path / "two", jobs=2)
    assert summaries(tmp_path / "one") == summaries(tmp_path / "two")
    before = summaries(tmp_path / "one")
    compare(GRID, tmp_path / "one", jobs=1)
    assert summaries(tmp_path / "one") == before


def test_compare__order_of_the_grid_does_not_matter(tmp_path):
    compare(GRID, tmp_path / "a", jobs=1)
    compare({**GRID, "routing": ["random", "round_robin"]}, tmp_path / "b", jobs=1)
    for path in (tmp_path / "a" / "records").glob("*.parquet"):
        assert read_records(path).tobytes() == read_records(tmp_path / "b" / "records" / path.name).tobytes()


def test_compare__seeds_are_paired(tmp_path):
    compare(GRID, tmp_path / "out", jobs=1)
    arrivals = {}
    for path in (tmp_path / "out" / "records").glob("*.parquet"):
        rows = np.sort(read_records(path), order="request")
        arrivals.setdefault(path.stem[-2:], []).append(tuple(rows["arrival_s"]))
    assert [(len(found), len(set(found))) for found in arrivals.values()] == [(4, 1), (4, 1)]
    assert arrivals["s0"][0] != arrivals["s1"][0]


def test_compare__finished_runs_are_kept_after_an_interrupt(tmp_path, runs):
    runs.stop_at = 3
    with pytest.raises(KeyboardInterrupt):
        compare(GRID, tmp_path / "out", jobs=1)
    assert len(list((tmp_path / "out" / "records").glob("*.json"))) == 3
    assert not (tmp_path / "out" / "summary.csv").exists()
    runs.stop_at = None
    compare(GRID, tmp_path / "out", jobs=1)
    assert runs.count == 8
    compare(GRID, tmp_path / "fresh", jobs=1)
    assert summaries(tmp_path / "out") == summaries(tmp_path / "fresh")


def test_compare__more_seeds_join_a_finished_folder(tmp_path, runs):
    compare({**GRID, "seeds": 1}, tmp_path / "out", jobs=1)
    compare(GRID, tmp_path / "out", jobs=1)
    assert runs.count == 8


def test_compare__a_folder_of_another_run_is_refused(tmp_path, runs):
    compare(GRID, tmp_path / "out", jobs=1)
    before = {path.name: path.stat().st_mtime_ns for path in (tmp_path / "out").rglob("*")}
    other = {**GRID, "clusters": [{"use": {"workers": 3, "capacity_tokens": 1000}, "name": "two"}]}
    with pytest.raises(ResultsError, match="holds results of another run"):
        compare(other, tmp_path / "out", jobs=1)
    assert {path.name: path.stat().st_mtime_ns for path in (tmp_path / "out").rglob("*")} == before
    assert runs.count == 8


def test_compare__other_code_is_another_run(tmp_path, monkeypatch):
    compare(GRID, tmp_path / "out", jobs=1)
    monkeypatch.setattr("kvgym.harness.compare.manifest._source_hash", lambda cells: "edited")
    with pytest.raises(ResultsError, match="other configuration, code or data"):
        compare(GRID, tmp_path / "out", jobs=1)


@pytest.mark.parametrize("content", ["", "{", "[]", '{"x": 1}'])
def test_compare__a_folder_that_is_not_ours_is_refused(tmp_path, content):
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "manifest.json").write_text(content)
    with pytest.raises(ResultsError, match="choose another --out"):
        compare(GRID, tmp_path / "out", jobs=1)
    (tmp_path / "out" / "manifest.json").rename(tmp_path / "out" / "thesis.txt")
    with pytest.raises(ResultsError, match=r"is not empty and holds no manifest\.json"):
        compare(GRID, tmp_path / "out", jobs=1)
    assert files(tmp_path / "out") == ["thesis.txt"]


@pytest.mark.parametrize("suffix", ["json", "parquet"])
def test_compare__a_damaged_run_is_named(tmp_path, suffix):
    compare(GRID, tmp_path / "out", jobs=1)
    path = sorted((tmp_path / "out" / "records").glob(f"*.{suffix}"))[0]
    path.write_bytes(path.read_bytes()[:-30])
    with pytest.raises(ResultsError, match=f"{path.name}.*to run this cell again"):
        compare(GRID, tmp_path / "out", jobs=1)
    for each in path.parent.glob(f"{path.stem}.*"):
        each.unlink()
    compare(GRID, tmp_path / "out", jobs=1)


def test_compare__a_swapped_run_is_noticed(tmp_path):
    compare(GRID, tmp_path / "out", jobs=1)
    records = tmp_path / "out" / "records"
    first, second = sorted(records.glob("*-s0.json"))[:2]
    second.write_bytes(first.read_bytes())
    second.with_suffix(".parquet").write_bytes(first.with_suffix(".parquet").read_bytes())
    with pytest.raises(ResultsError, match="describes another run"):
        compare(GRID, tmp_path / "out", jobs=1)


def test_compare__unwritable_folder(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(ResultsError, match=r"cannot write to .*choose another --out"):
        compare(GRID, tmp_path / "file" / "out", jobs=1)


@pytest.mark.parametrize(
    "change",
    [
        {"routing": ["nobody"]},
        {"workloads": [{"use": {**GSP, "groups": 0}}]},
        {"clusters": [{"use": {"workers": 0}}]},
        {"baseline": {"routing": "random", "eviction": "lfu"}},
    ],
)
def test_compare__a_wrong_configuration_writes_nothing(tmp_path, change):
    with pytest.raises(KVGymError):
        compare({**GRID, **change}, tmp_path / "out", jobs=1)
    assert list(tmp_path.iterdir()) == []


def test_compare__a_failing_run_keeps_the_finished_ones(tmp_path, monkeypatch):
    def fail(cell, seed, real=module.run, **options):
        if cell.routing == "random":
            raise ResultsError("broken")
        return real(cell, seed, **options)

    monkeypatch.setattr(module, "run", fail)
    with pytest.raises(ResultsError, match="broken"):
        compare(GRID, tmp_path / "out", jobs=1)
    assert len(list((tmp_path / "out" / "records").glob("*round_robin*.json"))) == 2


def test_compare__says_what_is_left_out(tmp_path, capsys):
    absent = {"use": {"source": "mooncake", "path": "nowhere.jsonl"}, "name": "trace", "optional": True}
    done = compare({**GRID, "workloads": [*GRID["workloads"], absent]}, tmp_path / "out", 1, Console(stderr=True))
    message = "trace is left out: no file 'nowhere.jsonl'"
    assert message in capsys.readouterr().err
    assert message in (done.folder / "report.md").read_text()


def test_report__published_values_stand_beside_ours(tmp_path):
    pairs = [
        {"routing": "random", "eviction": "lru", "published": {"p50_latency_s": 26.5}},
        {"routing": "round_robin", "eviction": "lru"},
    ]
    data = {key: GRID[key] for key in ("name", "workloads", "clusters", "seeds")}
    done = compare({**data, "cells": pairs, "notes": "Why this is run."}, tmp_path / "out", jobs=1)
    report = (done.folder / "report.md").read_text()
    assert "Why this is run." in report
    assert "| routing | eviction | p50_latency_s published | p50_latency_s ours |" in report
    assert "| random | lru | 26.5 |" in report
    assert "| round_robin | lru | - |" in report


CLASSES = {"tenants": 3, "tenant_skew": 1.0, "priorities": [0.5, 0.5]}


def test_report__classes_goodput_and_conditions(tmp_path):
    workload = {"use": {**GSP, **CLASSES}, "name": "gsp"}
    slo = {"ttft_s": 0.5, "latency_s": 1.5}
    data = {**GRID, "workloads": [workload], "slo": slo, "warmup_s": 0.5, "charge_decision_time": 0.001}
    done = compare(data, tmp_path / "out", jobs=1)
    report = (done.folder / "report.md").read_text()
    assert "Goodput: requests with ttft_s <= 0.5, latency_s <= 1.5." in report
    assert "Requests that arrive in the first 0.5 s count in totals and rates only." in report
    assert "Each decision takes 0.001 s of simulated time" in report
    assert report.count("### Per ") == 2
    rows = list(csv.DictReader((done.folder / "classes.csv").read_text().splitlines()))
    assert [(row["kind"], row["class"]) for row in rows[:5]] == [
        ("priority", "0"), ("priority", "1"), ("tenant", "0"), ("tenant", "1"), ("tenant", "2"),
    ]  # fmt: skip
    assert len(rows) == 5 * 4
    cell = json.loads((done.folder / "summary.json").read_text())["cells"][0]
    for kind in ("priority", "tenant"):
        parts = [row for row in cell["classes"] if row["kind"] == kind]
        good = sum(row["requests"] * row["goodput_share"] for row in parts) / sum(row["requests"] for row in parts)
        assert good == pytest.approx(cell["goodput_share"], rel=0.2)  # means over seeds
    assert 0 < cell["fairness"] < 1


def test_report__without_classes_or_slo_has_none_of_their_columns(tmp_path):
    done = compare(GRID, tmp_path / "out", jobs=1)
    report = (done.folder / "report.md").read_text()
    assert not any(word in report for word in ("### Per", "goodput", "fairness", "prediction", "Not deterministic"))
    assert not (done.folder / "classes.csv").exists()
    assert "saturated" not in report  # too few requests to say
    row = next(csv.DictReader((done.folder / "summary.csv").read_text().splitlines()))
    assert (row["goodput_share"], row["fairness"], row["saturated"]) == ("", "", "")


def test_report__predictions_and_saturation_where_there_are_any(tmp_path):
    load = {"use": {**GSP, "groups": 40, "rate_rps": 200.0}, "name": "gsp"}
    done = compare({**GRID, "workloads": [load], "routing": ["lbgr", "random"]}, tmp_path / "out", jobs=1)
    lbgr, plain = done.summary.cells[0], done.summary.cells[-1]
    assert lbgr.mean("prediction_error") > 0
    assert plain.mean("prediction_error") is None
    assert plain.mean("saturated") == 1.0
    report = (done.folder / "report.md").read_text()
    assert "prediction error % | prediction bias % | saturated %" in report
    assert "saturated %" in table_rows(done.summary.cells, short=True)[0]
    assert json.loads((done.folder / "summary.json").read_text())["cells"][0]["saturated"] == lbgr.mean("saturated")


def test_measured_decisions__are_marked_everywhere(tmp_path):
    done = compare({**GRID, "charge_decision_time": "measured"}, tmp_path / "out", jobs=1)
    assert not done.deterministic
    assert "**Not deterministic**" in (done.folder / "report.md").read_text()
    for name in ("summary.json", "manifest.json"):
        assert json.loads((done.folder / name).read_text())["deterministic"] is False
    assert json.loads((compare(GRID, tmp_path / "plain", jobs=1).folder / "summary.json").read_text())["deterministic"]


def test_compare__a_run_that_fails_removes_only_what_it_has_made(tmp_path):
    own = tmp_path / "out" / ".git" / "precious"
    own.parent.mkdir(parents=True)
    own.write_text("mine")
    grid = {"name": "x", "workloads": [{"use": {"source": "gsp", "groups": 2}}], "routing": [f"{__name__}:Boom"]}
    with pytest.raises(ConfigError, match=r"Boom' failed in act: ZeroDivisionError: .* by zero \(.*, line \d+\)"):
        compare(grid | {"eviction": ["lru"], "seeds": 1}, tmp_path / "out", jobs=1)
    assert [path.name for path in (tmp_path / "out").iterdir()] == [".git"] and own.read_text() == "mine"


class Boom(RoundRobin):
    """Fails in its first decision."""

    def act(self, decision):
        return 1 // 0
