from __future__ import annotations

import pytest

from kvgym.errors import ConfigError
from kvgym.harness.compare.grid import load_compare
from kvgym.harness.compare.overrides import override_compare
from kvgym.harness.compare.plan import make_plan

BASE = {
    "name": "t",
    "workloads": [{"use": {"source": "gsp", "groups": 4}, "name": "tiny"}],
    "clusters": ["l40x4", {"use": {"workers": 2}}],
    "routing": ["random"],
    "eviction": ["lru"],
}


def test_override__reaches_into_every_preset_and_says_so():
    cells = make_plan(load_compare(override_compare(BASE, ["cluster.workers=8", "workload.rate_rps=4.0"]))).cells
    assert [cell.fleet.workers for cell in cells] == [8, 8]
    assert [cell.cluster for cell in cells] == ["l40x4 workers=8", "cluster workers=8"]
    assert {(cell.source.rate_rps, cell.workload) for cell in cells} == {(4.0, "tiny rate_rps=4.0")}


def test_override__other_keys_are_paths_into_the_comparison():
    data = override_compare(BASE, ["seeds=7", "eviction=[lru, rlt]", "clusters.1.use.workers=5"])
    assert (data["seeds"], data["eviction"], data["clusters"][1]["use"]) == (7, ["lru", "rlt"], {"workers": 5})
    assert BASE["clusters"][1] == {"use": {"workers": 2}}


def test_override__default_fleet_can_be_changed():
    data = {key: value for key, value in BASE.items() if key != "clusters"}
    (cell,) = make_plan(load_compare(override_compare(data, ["cluster.page_size=16"]))).cells
    assert cell.fleet.page_size == 16


@pytest.mark.parametrize("text", ["cluster.worker=8", "cluster.workers=none", "nothing=1"])
def test_override__mistakes(text):
    with pytest.raises(ConfigError):
        make_plan(load_compare(override_compare(BASE, [text])))


def test_cluster__reaches_into_the_fleets_of_a_workload():
    data = {"workloads": [{"use": "gsp_small", "clusters": ["l40x4"]}, "gsp_default"], "clusters": ["l40x4"]}
    changed = override_compare(data, ["cluster.workers=8"])
    (own,) = changed["workloads"][0]["clusters"]
    assert own["use"]["workers"] == 8 and own["name"] == "l40x4 workers=8"
    assert changed["workloads"][1] == "gsp_default" and changed["clusters"][0]["use"]["workers"] == 8
    assert data["workloads"][0]["clusters"] == ["l40x4"]
