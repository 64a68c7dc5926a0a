from __future__ import annotations

import pytest

from kvgym.cluster import ClusterConfig, resolve_cluster
from kvgym.config import build, preset_names
from kvgym.errors import ConfigError, UnknownNameError


@pytest.mark.parametrize(
    ("field_name", "value"),
    [
        ("workers", 0),
        ("capacity_tokens", 0),
        ("capacity_tokens", [10, 10]),
        ("page_size", 0),
        ("speed", 0.0),
        ("speed", [1.0]),
        ("evict_amount", "some"),
        ("request_overhead_s", -1.0),
        ("chunk_tokens", 0),
    ],
)
def test_cluster__bad_values_are_refused(field_name, value):
    with pytest.raises(ConfigError, match=field_name):
        build(ClusterConfig, {field_name: value}, "cluster")


def test_cluster__one_value_or_one_per_worker():
    assert build(ClusterConfig, {"workers": 2, "capacity_tokens": [10, 20]}).capacities == (10, 20)
    assert build(ClusterConfig, {"workers": 2, "speed": 2}).speeds == (2.0, 2.0)


def test_cluster__capacity_below_a_page():
    with pytest.raises(ConfigError, match="at least one page"):
        ClusterConfig(capacity_tokens=8, page_size=16)


@pytest.mark.parametrize("name", preset_names("clusters"))
def test_presets__every_cluster_builds(name):
    assert resolve_cluster(name).workers >= 1


def test_presets__name_path_map_and_object_mean_the_same(tmp_path):
    path = tmp_path / "mine.yaml"
    path.write_text("workers: 3\ncost: {kind: x, p0: 1e-3}\n")
    by_path = resolve_cluster(path)
    assert by_path == resolve_cluster({"workers": 3, "cost": {"kind": "x", "p0": 0.001}})
    assert resolve_cluster(by_path) is by_path


def test_presets__unknown_name_gives_the_nearest():
    with pytest.raises(UnknownNameError, match=r"no preset 'l40x5'.*did you mean 'l40x4'"):
        resolve_cluster("l40x5")
