from __future__ import annotations

import json
import re
import shutil
import sys

import pytest

from kvgym.errors import ResultsError, UnknownNameError
from kvgym.harness.compare.results import find_run, read_results
from kvgym.harness.report.tables import markdown
from kvgym.harness.tools.comparison import compare


@pytest.fixture(scope="module")
def finished(grid, tmp_path_factory):
    return compare({**grid, "name": "tiny <b>&amp;"}, tmp_path_factory.mktemp("finished") / "out", jobs=1).folder


@pytest.fixture
def folder(finished, tmp_path):
    return shutil.copytree(finished, tmp_path / "elsewhere")


def drop(folder, pattern):
    for path in folder.glob(pattern):
        path.unlink()


def test_read_results__gives_what_the_comparison_gave(finished, folder):
    results = read_results(folder)
    assert results.missing == []
    assert markdown(results) == (finished / "report.md").read_text()
    assert json.loads((folder / "summary.json").read_text())["cells"][1]["p50_latency_s"] == results.summary.cells[
        1
    ].mean("p50_latency_s")


def test_read_results__needs_no_plug_in_and_no_data(grid, tmp_path, monkeypatch):
    (tmp_path / "gone_router.py").write_text("from controllers.routing.round_robin import RoundRobin as Router\n")
    row = {"timestamp": 0, "input_length": 600, "output_length": 2, "hash_ids": [1, 2]}
    (tmp_path / "gone.jsonl").write_text(json.dumps(row) + "\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    workload = {"use": {"source": "mooncake", "path": str(tmp_path / "gone.jsonl")}, "name": "trace"}
    made = compare({**grid, "workloads": [workload], "routing": ["gone_router:Router"]}, tmp_path / "out", jobs=1)
    for name in ("gone_router.py", "gone.jsonl"):
        (tmp_path / name).unlink()
    monkeypatch.delitem(sys.modules, "gone_router")
    (tmp_path / "out").rename(tmp_path / "moved")
    assert markdown(read_results(tmp_path / "moved")) == (tmp_path / "moved" / "report.md").read_text()
    assert made.summary.cells[0].mean("completed") == 1


def test_read_results__an_unfinished_run_shows_what_is_there(folder):
    drop(folder, "records/*random-rlt-*")
    drop(folder, "records/*random-lru-*-s1.json")
    results = read_results(folder)
    assert [(labels[2:], seed) for labels, seed in results.missing] == [
        (("random", "lru"), 1),
        (("random", "rlt"), 0),
        (("random", "rlt"), 1),
    ]
    cells = {cell.labels[2:]: cell for cell in results.summary.cells}
    assert {name: cell.seeds for name, cell in cells.items()} == {
        ("round_robin", "lru"): (0, 1),
        ("round_robin", "rlt"): (0, 1),
        ("random", "lru"): (0,),
    }
    # one seed is paired with the same seed of the baseline, and has no interval
    values = [cells[name].per_seed[0]["p50_latency_s"] for name in (("random", "lru"), ("round_robin", "lru"))]
    assert cells["random", "lru"].ratios["p50_latency_s"] == (pytest.approx(values[0] / values[1]), None, None)
    report = markdown(results)
    assert "- gsp / two / random / lru: no result of seed 1" in report
    assert "- gsp / two / random / rlt: no result of seeds 0, 1" in report


def test_read_results__without_the_baseline_there_are_no_ratios(folder):
    drop(folder, "records/*round_robin-lru-*")
    results = read_results(folder)
    assert {cell.ratios["p50_latency_s"] for cell in results.summary.cells} == {(None, None, None)}
    assert "| random | lru |" in markdown(results)


def test_read_results__a_folder_without_results(folder, tmp_path):
    drop(folder, "records/*")
    with pytest.raises(ResultsError, match=r"no run in .* has finished; run `kvgym compare` into it first"):
        read_results(folder)
    with pytest.raises(ResultsError, match="give the output folder of a `kvgym compare`"):
        read_results(tmp_path)


@pytest.mark.parametrize(
    "change",
    [
        {"config": None},
        {"config": {"name": "x"}},
        {"cells": [{}]},
        {"cells": [{"labels": ["a"], "published": {}, "concentrates": "", "plain": {}}]},
        {"versions": 3},
        {"cells": 7},
    ],
)
def test_read_results__a_damaged_manifest(folder, change):
    manifest = json.loads((folder / "manifest.json").read_text())
    (folder / "manifest.json").write_text(json.dumps({**manifest, **change}))
    with pytest.raises(ResultsError, match=r"manifest\.json is damaged or of another release"):
        read_results(folder)


@pytest.mark.parametrize(
    "change",
    [
        lambda facts: facts.pop("totals"),
        lambda facts: facts.update(totals=None),
        lambda facts: facts["totals"].pop("busy_s"),
        lambda facts: facts["totals"].update(busy_s=[]),
        lambda facts: facts["totals"].update(makespan_s="soon"),
        lambda facts: facts.update(timing=[]),
        lambda facts: facts.pop("notes"),
    ],
)
def test_read_results__a_run_without_its_numbers_is_named(folder, change):
    path = sorted((folder / "records").glob("*.json"))[0]
    facts = json.loads(path.read_text())
    change(facts)
    path.write_text(json.dumps(facts))
    with pytest.raises(ResultsError, match=r"damaged .*delete it.* to run .* again"):
        read_results(folder)


def test_read_results__a_truncated_parquet_that_its_mark_describes(folder):
    import hashlib

    path = sorted((folder / "records").glob("*.parquet"))[0]
    path.write_bytes(path.read_bytes()[:-30])
    mark = path.with_suffix(".json")
    facts = json.loads(mark.read_text())
    facts["records_sha256"] = hashlib.sha256(path.read_bytes()).hexdigest()
    mark.write_text(json.dumps(facts))
    with pytest.raises(
        ResultsError, match=f"cannot read request records from .*{path.name}.*delete it to run it again"
    ):
        read_results(folder)


def test_find_run__by_the_names_of_the_tables(folder):
    records, samples = find_run(folder, "gsp/two/random/lru", 1)
    assert (len(records), samples.kv_use.shape[1]) == (32, 2)
    drop(folder, "samples/*")
    assert find_run(folder, "gsp/two/random/lru", 1)[1] is None
    with pytest.raises(UnknownNameError, match="did you mean 'gsp/two/random/lru'"):
        find_run(folder, "gsp/two/randm/lru", 1)
    with pytest.raises(ResultsError, match="no finished run of gsp/two/random/lru with seed 9"):
        find_run(folder, "gsp/two/random/lru", 9)


def test_order_of_the_grid__gives_every_cell_the_same_numbers(grid, finished, tmp_path):
    turned = {**grid, "routing": ["random", "round_robin"], "eviction": ["rlt", "lru"], "seeds": [1, 0]}
    turned["baseline"] = {"routing": "round_robin", "eviction": "lru"}
    compare(turned, tmp_path / "out", jobs=1)
    found = []
    for folder in (finished, tmp_path / "out"):
        cells = json.loads((folder / "summary.json").read_text())["cells"]
        for cell in cells:
            cell["per_seed"].sort(key=lambda row: row["seed"])
            ratios = cell.pop("ratios")
            cell["p50_ratio"] = pytest.approx(ratios["p50_latency_s"]["ratio"], rel=1e-12)
        found.append({(cell["routing"], cell["eviction"]): cell for cell in cells})
    assert found[0] == found[1]


def test_report__command(kvgym, folder, tmp_path):
    for name in ("report.md", "report.html"):
        (folder / name).unlink()
    code, out, _ = kvgym("report", str(folder), "--html", "page.html", "--json")
    last = json.loads(out)
    assert (code, last["html"], last["missing_runs"]) == (0, "page.html", 0)
    assert (folder / "report.md").exists() and not (folder / "report.html").exists()
    assert "tiny &lt;b&gt;&amp;amp;" in (tmp_path / "page.html").read_text()
    code, out, err = kvgym("report", str(tmp_path))
    assert (code, out) == (2, "") and re.fullmatch(r"error: .* holds no manifest\.json; give the output .*\n", err)
    code, out, err = kvgym("report", str(folder), "--html", "no/such/page.html")
    assert (code, out) == (2, "") and "cannot write no/such/page.html" in err


def test_trace__command(kvgym, folder, tmp_path):
    code, out, _ = kvgym("trace", str(folder), "--cell", "gsp/two/random/lru", "--out", "t.json", "--json")
    last = json.loads(out)
    assert (code, last["out"]) == (0, "t.json")
    assert len(json.loads((tmp_path / "t.json").read_text())["traceEvents"]) == last["events"] > 100
