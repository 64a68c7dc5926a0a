import pytest

from kvgym.errors import ConfigError, UnknownNameError
from kvgym.harness.compare.grid import load_compare
from kvgym.harness.compare.plan import make_plan
from kvgym.harness.compare.variants import written_out

BASE = {"name": "x", "workloads": ["gsp_small"], "routing": ["random"], "eviction": ["lru"]}


def labels(change):
    return [cell.labels for cell in make_plan(load_compare({**BASE, **change})).cells]


def test_vary__every_combination_is_an_entry_of_its_own():
    change = {
        "clusters": [{"use": "l40x4", "set": {"page_size": 16}, "vary": {"workers": [2, 3], "speed": [1.0, 2.0]}}]
    }
    plan = make_plan(load_compare({**BASE, **change}))
    assert [cell.cluster for cell in plan.cells] == [
        "l40x4 workers 2 speed 1",
        "l40x4 workers 2 speed 2",
        "l40x4 workers 3 speed 1",
        "l40x4 workers 3 speed 2",
    ]
    assert {(cell.fleet.page_size, cell.fleet.workers) for cell in plan.cells} == {(16, 2), (16, 3)}


def test_set__a_given_name_stays():
    assert labels({"workloads": [{"use": "gsp_small", "set": {"rate_rps": 1.0}, "name": "slow"}]})[0][0] == "slow"
    assert labels({"workloads": [{"use": "gsp_small", "set": {"rate_rps": 1.0}}]})[0][0] == "gsp_small rate_rps 1"


def test_routing__set_and_vary_are_its_options():
    change = {
        "routing": [{"use": "cache_aware", "options": {"balance_abs": 8}, "vary": {"cache_threshold": [0.1, 0.2]}}]
    }
    cells = make_plan(load_compare({**BASE, **change})).cells
    assert [cell.options for cell in cells] == [{"balance_abs": 8, "cache_threshold": t} for t in (0.1, 0.2)]
    assert [cell.routing for cell in cells] == ["cache_aware cache_threshold 0.1", "cache_aware cache_threshold 0.2"]


def test_workloads__their_own_clusters_too():
    change = {"workloads": [{"use": "gsp_small", "clusters": [{"use": "l40x4", "vary": {"workers": [1, 2]}}]}]}
    assert [cell[1] for cell in labels(change)] == ["l40x4 workers 1", "l40x4 workers 2"]


def test_written_out__is_left_alone_the_second_time():
    once = written_out({**BASE, "clusters": [{"use": "l40x4", "vary": {"workers": [1, 2]}}]})
    assert written_out(once) == once


@pytest.mark.parametrize(
    ("entry", "error", "message"),
    [
        ({"vary": {"workers": [1]}}, ConfigError, "set and vary change what `use` names"),
        ({"use": "l40x4", "vary": {"workers": 2}}, ConfigError, r"vary.workers must list values.*got 2"),
        ({"use": "l40x4", "vary": {"workers": []}}, ConfigError, "vary.workers must list values"),
        ({"use": "l40x4", "set": [1]}, ConfigError, "set must be a map"),
        ({"use": "l40x5", "set": {"workers": 1}}, UnknownNameError, "l40x5"),
        ({"use": "l40x4", "set": {"wrokers": 1}}, ConfigError, "wrokers"),
    ],
)
def test_mistakes__are_named(entry, error, message):
    with pytest.raises(error, match=message):
        make_plan(load_compare({**BASE, "clusters": [entry]}))
