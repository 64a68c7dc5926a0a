from __future__ import annotations

import json
import subprocess
import sys

import pytest

from kvgym.cli import app

TINY = """
name: tiny
workloads: [{use: {source: gsp, groups: 8, prompts_per_group: 4, lens: [64, 128]}, name: gsp}]
clusters: [{use: {workers: 2, capacity_tokens: 1000}, name: two}]
routing: [round_robin, random]
eviction: [lru]
seeds: 1
"""


def test_list__names_with_the_first_line_of_their_module(kvgym):
    code, out, _ = kvgym("list")
    assert code == 0
    for title in (
        "workloads",
        "routing",
        "eviction",
        "costs",
        "clusters",
        "compare",
        "envs",
        "cluster fields",
        "signals fields",
    ):
        assert f"\n{title}\n" in f"\n{out}"
    lines = [line.split(maxsplit=1) for line in out.splitlines() if line.startswith("  ")]
    assert all(len(line) == 2 for line in lines), "every entry has a sentence"
    assert {"gsp", "lbgr_release", "rlt", "l40x4", "quickstart", "kvgym/Routing-v0"} <= {line[0] for line in lines}


def test_list__one_family(kvgym):
    code, out, _ = kvgym("list", "eviction")
    assert (code, out.splitlines()[0]) == (0, "eviction")
    code, _, err = kvgym("list", "evictoin")
    assert code == 2
    assert "did you mean 'eviction'?" in err


def test_list__compiles_nothing():
    code = "import sys; from kvgym.harness.tools.catalogue import catalogue; catalogue(); print('numba' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


def test_compare__one_json_object(kvgym, tmp_path):
    (tmp_path / "tiny.yaml").write_text(TINY)
    code, out, _ = kvgym("compare", "tiny.yaml", "--jobs", "1", "--out", "here", "--seeds", "2", "--json")
    last = json.loads(out)
    assert (code, last["out"], last["deterministic"]) == (0, "here", True)
    cell = last["cells"][0]
    assert (cell["workload"], cell["cluster"], cell["routing"], cell["eviction"]) == (
        "gsp",
        "two",
        "round_robin",
        "lru",
    )
    assert cell["seeds"] == 2
    for key in ("p50_latency_s", "p95_latency_s", "p50_ttft_s", "hit_rate", "makespan_s", "makespan_load_s"):
        assert cell[key] > 0
    assert (cell["throughput_rps"] > 0, cell["completed"], cell["rejected"], cell["failed"]) == (True, 32, 0, 0)


def test_compare__text_and_files_begin_with_the_verdict(kvgym, tmp_path):
    (tmp_path / "tiny.yaml").write_text(TINY)
    code, out, _ = kvgym("compare", "tiny.yaml", "--jobs", "1", "--out", "here")
    lines = out.splitlines()
    assert (code, lines[0]) == (0, "gsp on two") and lines[1].startswith("  Best median latency (P50): ")
    assert "  One seed: nothing can be said about noise; take more with --seeds 5." in lines
    assert lines[-1].startswith("files: here (report.html, ")
    markdown, page = (tmp_path / "here" / "report.md").read_text(), (tmp_path / "here" / "report.html").read_text()
    assert markdown.splitlines()[2:5] == ["## Verdict: gsp on two", "", f"- {lines[1].strip()}"]
    assert '<h1>tiny</h1><section class="verdict"><h2>Verdict: gsp on two</h2><ul><li>Best median latency' in page
    again = json.loads(kvgym("report", "here", "--json")[1])
    assert again["verdicts"][0]["sentences"][0] == lines[1].strip()
    assert kvgym("report", "here")[1].splitlines()[:2] == lines[:2]


def test_json__every_command_has_it():
    import typer.main

    commands = typer.main.get_command(app).commands
    assert all("--json" in {name for option in each.params for name in option.opts} for each in commands.values())


def test_list__as_json(kvgym):
    found = json.loads(kvgym("list", "eviction", "--json")[1])
    assert list(found) == ["eviction"] and {"lru", "rlt"} <= {entry["name"] for entry in found["eviction"]}


def test_compare__default_folder_and_overrides(kvgym, tmp_path):
    (tmp_path / "tiny.yaml").write_text(TINY)
    settings = ("--set", "cluster.workers=3", "--set", "seeds=[5]")
    code, out, _ = kvgym("compare", "tiny.yaml", "--jobs", "1", "--json", *settings)
    last = json.loads(out)
    assert (code, last["cells"][0]["cluster"]) == (0, "two workers=3")
    assert last["out"].startswith("results/tiny-")
    assert (tmp_path / last["out"] / "report.md").exists()


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (("compare", "quickstrat"), "no preset 'quickstrat' in configs/compare; did you mean 'quickstart'?"),
        (("compare", "nothing.yaml"), "cannot read configuration nothing.yaml"),
        (("compare", "quickstart", "--set", "seeds"), "--set takes KEY=VALUE"),
        (("run", "--routing", "lbrg"), "unknown routing controller 'lbrg'"),
        (("run", "--routing", "no.such:Router"), "cannot import routing controller"),
        (("run", "--set", "slo.ttft=1"), "unknown key 'ttft' in settings.slo; did you mean 'ttft_s'"),
        (("run", "--set", "charge_decision_time=-1"), "charge_decision_time must be 'measured' or seconds from 0"),
        (("run", "--set", "warmup_s=-1"), "warmup_s must not be negative"),
        (("run", "--set", "seed=1"), "unknown key 'seed' in settings; allowed: workload, cluster, options"),
        (("run", "--set", "signals.scrape=5"), "unknown key 'scrape' in settings.signals; did you mean 'scrape_s'?"),
        (("run", "--set", "options.x=1"), "routing controller 'lbgr_release' does not take {'x': 1}"),
        (
            ("run", "--routing", "lbgr", "--set", "options.mis_price=1"),
            "got an unexpected keyword argument 'mis_price'; did you mean 'miss_price'?; options: miss_price, keep,",
        ),
        (("run", "--records", "no/such/folder.parquet"), "cannot write no/such/folder.parquet"),
        (("run", "--records", "mine.yaml"), "cannot write mine.yaml: its name must end in .parquet"),
        (
            ("run", "--set", "workload=3"),
            "workload must be a preset name, a path, a map or a workload source, got int ('3')",
        ),
        (("run", "--set", "options=3"), "settings.options must be a map, got int ('3')"),
        (
            ("run", "--set", "workload.rate_rps=1e-320"),
            "rate_rps must be > 0 (at least 1e-06, at most 1e+09; null: all at once)",
        ),
        (
            ("run", "--set", "cluster.workers=1000000000"),
            "workers must be a whole number >= 1 and <= 100,000, got 1000000000",
        ),
        (("run", "--set", "cluster.cost=2020-99-99"), "is not valid YAML"),
        (("run", "--routing", ":x"), "cannot import routing controller"),
        (("run", "--routing", "os:getcwd"), "has no reset()"),
        (("run", "--eviction", "os:path"), "must be a kvgym.engine.cache.policy.Policy"),
        (("run", "--eviction", "belady"), "this eviction policy sees the future"),
        (("serve-workers", "cpu2", "--eviction", "belady"), "sees the future, which real servers do not know"),
        (("compare", "quickstart", "--set", "name=../out"), "name must be usable as a folder name"),
        (
            (
                "compare",
                "quickstart",
                "--set",
                "workloads=[gsp_small]",
                "--set",
                "routing=[{use: cache_aware, options: {z: 1}}]",
                "--set",
                "baseline=null",
            ),
            "does not take {'z': 1}",
        ),
    ],
)
def test_errors__one_line_on_stderr_and_exit_code_2(kvgym, tmp_path, args, message):
    code, out, err = kvgym(*args)
    assert (code, out) == (2, "")
    assert err.startswith("error: ") and message in err and err.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("args", "text", "message"),
    [
        (("compare", "my.yaml"), TINY + "job: 3\n", "my.yaml: unknown key 'job' in compare"),
        (("watch", "my.yaml"), TINY.replace("seeds: 1", "seeds: -1"), "my.yaml: "),
        (("run", "--workload", "my.yaml"), "source: gsp\ngroops: 3\n", "my.yaml: unknown key 'groops' in workload"),
        (("run", "--cluster", "my.yaml"), "workers: none\n", "my.yaml: cluster.workers must be"),
        (("compare", "my.yaml"), "workloads: [\n", "my.yaml"),
        (("compare", "my.yaml"), TINY.replace("random", "randm"), "my.yaml: unknown routing controller 'randm'"),
        (("run", "--workload", "my.yaml"), "source: gps\n", "my.yaml: unknown workload"),
        (("run", "--workload", "my.yaml"), "groups: 3\n", "my.yaml: workload lacks 'source'"),
        (("compare", "my.yaml", "--set", "seeds=abc"), TINY, "my.yaml with --set seeds=abc: compare.seeds must be"),
    ],
)
def test_errors__name_the_file_once(kvgym, tmp_path, args, text, message):
    (tmp_path / "my.yaml").write_text(text)
    code, out, err = kvgym(*args)
    assert (code, out) == (2, "")
    assert message in err and err.count("my.yaml") == 1


@pytest.mark.parametrize(
    ("args", "work", "told"),
    [
        (("run",), "kvgym.harness.tools.single.run_single", "the run was not finished"),
        (("import", "log.jsonl"), "kvgym.logs.importing.import_log", "no workload file was written"),
        (("theory",), "kvgym.theory.ratio_report.measure_into", "nothing was measured to the end"),
        (("bench",), "kvgym.harness.tools.bench.measure", "nothing was measured to the end"),
    ],
)
def test_interrupted__one_line_and_exit_code_130(kvgym, monkeypatch, args, work, told):
    def interrupt(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(work, interrupt)
    code, out, err = kvgym(*args)
    assert (code, out, err) == (130, "", f"interrupted: {told}\n")


def test_interrupted__while_nothing_has_begun(kvgym, monkeypatch):
    def interrupt(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr("kvgym.config.loader.load_config", interrupt)
    assert kvgym("compare", "quickstart") == (130, "", "interrupted\n")


def test_run__one_cell(kvgym, tmp_path):
    settings = ["--set", "workload.groups=4", "--set", "workload.lens=[64, 128]", "--set", "cluster.workers=2"]
    code, out, _ = kvgym(
        "run", "--routing", "round_robin", "--seed", "3", "--records", "r.parquet", "--json", *settings
    )
    last = json.loads(out)
    assert (code, last["routing"], last["seed"], last["completed"]) == (0, "round_robin", 3, 64)
    assert last["decisions"] == 64
    assert (tmp_path / "r.parquet").exists()
    assert (last["deterministic"], last["goodput_share"]) == (True, None)
    assert [worker["requests"] for worker in last["workers"]] == [32, 32]
    _, out, err = kvgym("run", "--routing", "round_robin", "--seed", "3", *settings)
    assert err == "" and out.splitlines()[0].endswith(": round_robin + rlt, seed 3")
    assert f"{last['p95_latency_s']:.3f}" in out and f"{last['throughput_rps']:.2f}" in out
    assert [line.split()[:3] for line in out.splitlines() if line.startswith("w")][1:] == [
        ["w0", "32", "50.0"],
        ["w1", "32", "50.0"],
    ]


@pytest.mark.parametrize("setting", ["observability=exact", "routers=4"])
def test_run__what_routers_see_changes_what_they_do(kvgym, setting):
    def latency(*settings):
        args = ("run", "--workload", "gsp_small", "--routing", "dynamo", "--set", "cluster.capacity_tokens=20000")
        return json.loads(kvgym(*args, *settings, "--json")[1])["mean_latency_s"]

    assert latency("--set", f"signals.{setting}") != latency()


def test_run__measures_as_a_comparison_does(kvgym):
    settings = ["--set", "workload.groups=4", "--set", "workload.lens=[64, 128]", "--set", "slo.latency_s=100"]
    code, out, _ = kvgym("run", *settings, "--set", "charge_decision_time=measured", "--set", "warmup_s=1", "--json")
    last = json.loads(out)
    assert (code, last["deterministic"], last["goodput_share"]) == (0, False, 1.0)


def test_run__a_plug_in_from_the_current_folder(kvgym, tmp_path):
    (tmp_path / "my_router_of_test_cli.py").write_text(
        "class Last:\n"
        "    def reset(self, spec, seed): self.workers = spec.workers\n"
        "    def act(self, decision): return self.workers - 1\n"
        "    def observe(self, records): pass\n"
    )
    settings = ["--set", "workload.groups=2", "--set", "workload.lens=[64]"]
    code, out, _ = kvgym("run", "--routing", "my_router_of_test_cli:Last", "--json", *settings)
    assert (code, json.loads(out)["busiest_share"]) == (0, 1.0)


def test_explain__one_run_or_a_folder(kvgym, tmp_path):
    (tmp_path / "tiny.yaml").write_text(TINY)
    assert kvgym("compare", "tiny.yaml", "--jobs", "1", "--out", "here")[0] == 0
    code, out, _ = kvgym("explain", "here", "--json")
    cells = json.loads(out)["cells"]
    assert (code, [cell["routing"] for cell in cells]) == (0, ["round_robin", "random"])
    code, out, _ = kvgym("explain", "here")
    assert code == 0 and "random + lru against round_robin + lru, points: " in out
    code, out, _ = kvgym("explain", "--routing", "round_robin", "--set", "workload.groups=4")
    assert code == 0 and "held by another worker (routing)" in out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nowhere"], "nowhere"),
        (["here", "--routing", "lbgr", "--seed", "1"], "--routing, --seed are for a run of its own"),
        (["--cell", "a/b/c/d"], "--cell names a cell of a folder"),
    ],
)
def test_explain__what_does_not_fit(kvgym, arguments, message):
    code, _, err = kvgym("explain", *arguments)
    assert code == 2 and message in err and "Traceback" not in err


def test_plan__workers_and_load(kvgym, tmp_path):
    (tmp_path / "tiny.yaml").write_text(TINY + "slo: {latency_s: 1.0}\n")
    code, out, _ = kvgym("plan", "tiny.yaml", "--jobs", "1", "--seeds", "2", "--json")
    found = json.loads(out)
    assert code == 0 and {pair["routing"] for pair in found["pairs"]} == {"round_robin", "random"}
    assert found["objective"]["share"] == 0.95 and all(pair["workers"]["value"] >= 1 for pair in found["pairs"])
    code, out, _ = kvgym("plan", "tiny.yaml", "--jobs", "1", "--no-load")
    assert code == 0 and "Smallest fleet: " in out and "req/s" not in out
    code, _, err = kvgym("plan", "tiny.yaml", "--set", "slo=null")
    assert code == 2 and "a plan needs an objective" in err
