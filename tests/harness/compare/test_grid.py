from __future__ import annotations

import pytest

from kvgym.config.loader import preset_folder, preset_names
from kvgym.config.options import to_plain
from kvgym.errors import ConfigError, UnknownNameError, WorkloadError
from kvgym.harness.compare.grid import load_compare
from kvgym.harness.compare.manifest import make_manifest
from kvgym.harness.compare.plan import make_plan

GSP = {"use": {"source": "gsp", "groups": 4, "prompts_per_group": 2, "lens": [64, 128]}, "name": "tiny"}
TWO = {"use": {"workers": 2, "capacity_tokens": 1000}, "name": "two"}
BASE = {"name": "t", "workloads": [GSP], "clusters": [TWO], "routing": ["random", "round_robin"], "eviction": ["lru"]}


def test_plan__grid_in_table_order():
    plan = make_plan(load_compare({**BASE, "eviction": ["lru", "rlt"]}))
    cells, skipped = plan.cells, plan.skipped
    assert [cell.labels[2:] for cell in cells] == [
        ("random", "lru"),
        ("random", "rlt"),
        ("round_robin", "lru"),
        ("round_robin", "rlt"),
    ]
    assert {cell.labels[:2] for cell in cells} == {("tiny", "two")}
    assert skipped == ()


def test_plan__cells_options_and_names():
    pair = {"routing": {"use": "cache_aware", "options": {"threshold": 0.49}, "name": "ca49"}, "eviction": "rlt"}
    data = {"name": "t", "workloads": [GSP], "clusters": [TWO], "cells": [pair]}
    (cell,) = make_plan(load_compare(data)).cells
    assert (cell.routing, cell.controller, dict(cell.options)) == ("ca49", "cache_aware", {"threshold": 0.49})


def test_plan__charged_decisions_are_part_of_what_a_cell_is():
    free, charged = (
        make_plan(load_compare({**BASE, **change})).cells[0] for change in ({}, {"charge_decision_time": 0.002})
    )
    assert (free.charge_decision_time, charged.charge_decision_time) == (0.0, 0.002)
    assert free.plain != charged.plain
    assert load_compare(BASE).deterministic
    assert not load_compare({**BASE, "charge_decision_time": "measured"}).deterministic


def test_plan__a_workload_may_have_fleets_of_its_own():
    other = {**GSP, "name": "other", "clusters": [{"use": {"workers": 3}, "name": "three"}]}
    cells = make_plan(load_compare({**BASE, "workloads": [GSP, other], "routing": ["random"]})).cells
    assert [cell.labels[:2] for cell in cells] == [("tiny", "two"), ("other", "three")]
    assert cells[1].fleet.workers == 3


def test_plan__optional_workload_without_its_file_is_left_out():
    entry = {"use": {"source": "mooncake", "path": "nowhere/trace.jsonl"}, "name": "trace", "optional": True}
    plan = make_plan(load_compare({**BASE, "workloads": [GSP, entry]}))
    cells, skipped = plan.cells, plan.skipped
    assert {cell.workload for cell in cells} == {"tiny"}
    assert len(skipped) == 1
    assert skipped[0].startswith("trace is left out: no file 'nowhere/trace.jsonl'")
    with pytest.raises(ConfigError, match="every workload is left out: trace is left out"):
        make_plan(load_compare({**BASE, "workloads": [entry]}))
    with pytest.raises(WorkloadError, match="no file"):
        make_plan(load_compare({**BASE, "workloads": [GSP, {**entry, "optional": False}]}))


def test_config__round_trips_to_plain_data():
    config = load_compare({**BASE, "baseline": {"routing": "random", "eviction": "lru"}, "seeds": [3, 1]})
    assert load_compare(to_plain({k: v for k, v in to_plain(config).items() if v is not None})) == config
    assert config.seed_list == (3, 1)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"routing": []}, "routing and eviction must both name"),
        ({"cells": [{"routing": "random", "eviction": "lru"}]}, "either cells, or routing and eviction"),
        ({"seeds": []}, "must not be empty"),
        ({"seeds": 0}, "seeds must be 1 to 1,000,000, or a list of seeds, got 0"),
        ({"seeds": -3}, "or a list of seeds, got -3"),
        ({"seeds": 10**11}, "seeds must be 1 to 1,000,000, or a list of seeds, got 100000000000"),
        ({"seeds": [1, 1]}, "distinct"),
        ({"seeds": [-1]}, "not negative"),
        ({"warmup_s": -1}, "warmup_s must not be negative"),
        ({"warmup_s": float("nan")}, "warmup_s must be a finite number"),
        ({"slo": {}}, r"compare\.slo: a service level objective needs at least one limit"),
        ({"slo": {"ttft": 2}}, r"unknown key 'ttft' in compare\.slo; did you mean 'ttft_s'"),
        ({"slo": {"ttft_s": -2}}, r"compare\.slo: ttft_s must be a number > 0, got -2"),
        ({"slo": {"tpot_s": "0.1 s"}}, r"compare\.slo\.tpot_s must be a number, got str"),
        ({"slo": {"latency_s": float("nan")}}, r"compare\.slo\.latency_s must be a finite number"),
        ({"slo": [2.0]}, r"compare\.slo must be .*got a list"),
        ({"charge_decision_time": -1e-3}, "charge_decision_time must be 'measured' or seconds from 0 to 3600"),
        ({"charge_decision_time": "measurd"}, "charge_decision_time must be .*'measured', got str"),
        ({"charge_decision_time": True}, r"compare\.charge_decision_time must be"),
        ({"charge_decision_time": float("inf")}, r"compare\.charge_decision_time must be a finite number"),
        ({"workloads": [{**GSP, "optinal": True}]}, r"unknown key 'optinal' in compare\.workloads\.0.*'optional'"),
        ({"nots": "x"}, r"unknown key 'nots' in compare; did you mean 'notes'"),
    ],
)
def test_config__mistakes(change, message):
    with pytest.raises(ConfigError, match=message):
        load_compare({**BASE, **change})


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"routing": ["rondom"]}, UnknownNameError, "unknown routing controller 'rondom'.*'random'"),
        ({"eviction": ["lruu"]}, UnknownNameError, "unknown eviction policy 'lruu'.*'lru'"),
        ({"workloads": [{"use": {"source": "gspp"}}]}, UnknownNameError, "unknown workload 'gspp'.*'gsp'"),
        ({"workloads": ["nothing"]}, UnknownNameError, "no preset 'nothing' in configs/workloads"),
        ({"workloads": ["gsp"]}, UnknownNameError, "'gsp' is a workload source, not a preset; give a .yaml file"),
        ({"clusters": [{"use": {"workers": 0}}]}, ConfigError, "cluster: workers must be a whole number >= 1"),
        ({"workloads": [GSP, GSP]}, ConfigError, "two cells are called tiny / two / random / lru"),
        ({"workloads": [{"use": {**GSP["use"], "rate_rps": -1.0}}]}, WorkloadError, "rate_rps must be > 0"),
    ],
)
def test_plan__mistakes(change, error, message):
    config = load_compare({**BASE, **change})
    with pytest.raises(error, match=message):
        make_plan(config)


def test_published__needs_a_known_metric_and_one_grid():
    pair = {"routing": "random", "eviction": "lru", "published": {"p50_latency_s": 1.0}}
    data = {"name": "t", "workloads": [GSP, {**GSP, "name": "b"}], "clusters": [TWO], "cells": [pair]}
    with pytest.raises(ConfigError, match="one workload and one cluster, got 2"):
        make_plan(load_compare(data))
    pair["published"] = {"p50_latency_ms": 1.0}
    with pytest.raises(ConfigError, match="unknown published metric 'p50_latency_ms'"):
        load_compare(data)


def test_baseline__first_pair_or_the_named_one():
    assert load_compare(BASE).baseline_pair.labels == ("random", "lru")
    named = load_compare({**BASE, "baseline": {"routing": "round_robin", "eviction": "lru"}})
    assert named.baseline_pair.labels == ("round_robin", "lru")
    with pytest.raises(ConfigError, match=r"baseline lbgr_release \+ lru is not in the grid"):
        load_compare({**BASE, "baseline": {"routing": "lbgr_release", "eviction": "lru"}})


@pytest.mark.parametrize("name", preset_names("compare"))
def test_presets__every_comparison_expands(name):
    from kvgym.config.loader import load_yaml

    config = load_compare(load_yaml(preset_folder("compare") / f"{name}.yaml"))
    cells = make_plan(config).cells
    assert len({cell.labels for cell in cells}) == len(cells) > 1
    assert config.baseline_pair


def test_signals__are_part_of_what_determines_the_results():
    (plain,) = make_plan(load_compare({**BASE, "routing": ["random"]})).cells
    (stale,) = make_plan(
        load_compare({**BASE, "routing": ["random"], "signals": {"scrape_s": 5.0, "routers": 2}})
    ).cells
    assert (stale.signals.scrape_s, stale.signals.routers, plain.signals.routers) == (5.0, 2, 1)
    assert stale.plain["signals"]["scrape_s"] == 5.0
    assert stale.plain != plain.plain
    with pytest.raises(ConfigError, match=r"unknown key 'scrape' in compare.signals; did you mean 'scrape_s'"):
        load_compare({**BASE, "signals": {"scrape": 5.0}})


@pytest.mark.parametrize("by_path", [True, False])
def test_identity__follows_the_content_of_a_model_file(tmp_path, by_path):
    model = tmp_path / "m.zip"
    entry = str(model) if by_path else {"use": "learned", "options": {"path": str(model)}}
    config = load_compare({**BASE, "routing": [entry]})
    made = []
    for content in (b"one", b"two", b"one"):
        model.write_bytes(content)
        made.append(make_manifest(make_plan(config)))
    assert made[0]["identity"] == made[2]["identity"] != made[1]["identity"]
    assert str(model) in made[0]["data_sha256"]
