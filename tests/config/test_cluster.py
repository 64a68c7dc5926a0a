from __future__ import annotations

import pytest

from kvgym.config.cluster import ClusterConfig, resolve_cluster
from kvgym.config.loader import preset_names
from kvgym.config.options import build, to_plain
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
        ("engine", "sglang"),
        ("long_prefill_tokens", 100),
        ("engine", ["sglang-0.5.23"]),
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


@pytest.mark.parametrize(
    ("network_s", "regions", "delays"),
    [
        (0, 1, ()),
        (0.5, 1, ((0.5, 0.5),)),
        ([0, 0.5], 1, ((0.0, 0.5),)),
        ({"europe": [0, 0.5], "asia": 1}, 2, ((0.0, 0.5), (1.0, 1.0))),
        ({"europe": 0, "asia": 0}, 2, ()),
    ],
)
def test_network__one_value_one_per_worker_or_by_region(network_s, regions, delays):
    made = build(ClusterConfig, {"workers": 2, "network_s": network_s})
    assert (made.regions, made.network_delays_s) == (regions, delays)
    assert build(ClusterConfig, to_plain(made)) == made


@pytest.mark.parametrize(
    ("network_s", "message"),
    [
        ({}, "network_s must name at least one region"),
        (-1, "network_s must be a number >= 0 and <= 1e.06, got -1"),
        ([0.1] * 3, "network_s has 3 values for 2 workers"),
        ({"asia": [0.1] * 3}, r"network_s\.asia has 3 values for 2 workers"),
        ({"asia": {"x": 1}}, r"network_s\.asia"),
        ({"asia": [0, -0.1]}, r"network_s\.asia must not be negative and at most 1e.06"),
        ([[0.1, 0.1]], r"cluster\.network_s\.0 must be a number"),
        ("near", r"cluster\.network_s must be a number"),
    ],
)
def test_network__mistakes(network_s, message):
    with pytest.raises(ConfigError, match=message):
        build(ClusterConfig, {"workers": 2, "network_s": network_s}, "cluster")


@pytest.mark.parametrize("name", ["retries", "retry_delay_s", "detect_s"])
def test_retry_rules__are_not_negative(name):
    with pytest.raises(ConfigError, match=f"{name} must be a .*number >= 0 and <= 1e.06, got -1"):
        build(ClusterConfig, {name: -1})
    with pytest.raises(ConfigError, match=f"{name} must be a .*number >= 0 .*got nan"):
        ClusterConfig(**{name: float("nan")})


def test_one_at_a_time__has_no_limits_of_batches_and_no_real_servers():
    with pytest.raises(ConfigError, match="one_at_a_time serves without max_running, got 7; leave max_running out"):
        ClusterConfig(one_at_a_time=True, max_running=7)
    with pytest.raises(ConfigError, match="one_at_a_time needs a simulated fleet"):
        ClusterConfig(one_at_a_time=True, live=resolve_cluster("l40x4_live").live)
    assert ClusterConfig(one_at_a_time=True, page_size=10_000).one_at_a_time


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"engine": "vllm-0.33", "one_at_a_time": True}, "one_at_a_time is for SGLang"),
        ({"engine": "vllm-0.33", "live": {"urls": ["http://a", "http://b", "http://c", "http://d"]}}, "live is for"),
        ({"engine": "vllm-0.33", "max_prefill_tokens": 100}, "SGLang's"),
        ({"engine": "sglang-0.5.23-mixed", "chunk_tokens": 2048}, "must exceed max_running"),
    ],
)
def test_cluster__engine_and_settings_must_agree(fields, message):
    with pytest.raises(ConfigError, match=message):
        build(ClusterConfig, fields, "cluster")


@pytest.mark.parametrize("engine", ["vllm-0.33", ["sglang-0.5.23", "vllm-0.33", "sglang-0.5.23", "vllm-0.13"]])
def test_cluster__max_prefill_tokens_beside_sglang(engine):
    fields = {"engine": engine, "long_prefill_tokens": 10} | (
        {} if engine == "vllm-0.33" else {"max_prefill_tokens": 9}
    )
    assert len(build(ClusterConfig, fields, "cluster").engines) == 4
