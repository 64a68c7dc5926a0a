from __future__ import annotations

import numpy as np
import pytest

from kvgym.config.loader import resolve_workload
from kvgym.config.options import build
from kvgym.errors import ConfigError, WorkloadError
from kvgym.workloads.gsp import GSP
from kvgym.workloads.varied import Varied

SMALL = {"source": "gsp", "groups": 4, "prompts_per_group": 5, "lens": [64], "rate_rps": 10.0}


def varied(**vary):
    return build(Varied, {"of": SMALL, "vary": vary})


def test_seed__draws_fields_within_their_limits():
    source = varied(rate_rps={"low": 8, "high": 14}, order=["random", "worst"])
    drawn = [source.generate(seed).notes["varied"] for seed in range(40)]
    rates = [row["rate_rps"] for row in drawn]
    assert min(rates) >= 8 and max(rates) <= 14 and max(rates) - min(rates) > 3
    assert {row["order"] for row in drawn} == {"random", "worst"}
    assert source.generate(3).notes["varied"] == drawn[3]


def test_episode__is_one_of_the_workload_with_the_drawn_fields():
    workload = varied(rate_rps=[7.0]).generate(5)
    same = GSP(groups=4, prompts_per_group=5, lens=(64,), rate_rps=7.0).generate(5)
    assert np.array_equal(workload.requests, same.requests)


def test_resolve__by_name_from_plain_data():
    source = resolve_workload({"source": "varied", "of": SMALL, "vary": {"output_tokens": [1, 2]}})
    assert {int(source.generate(s).requests["output_tokens"][0]) for s in range(12)} == {1, 2}


def test_path__is_that_of_the_workload():
    assert varied(order=["random"]).path is None
    source = Varied({"source": "mooncake", "path": "some.jsonl"}, {"rate_rps": (1.0,)})
    assert source.path == "some.jsonl"


@pytest.mark.parametrize(
    ("vary", "message"),
    [
        ({}, "at least one field"),
        ({"rate_rps": []}, "list of values for 'rate_rps' is empty"),
        ({"rate_rsp": [8]}, "did you mean 'rate_rps'"),
        ({"order": ["sorted"]}, "order must be one of"),
        ({"rate_rps": {"low": 9, "high": 8}}, "low must not be above high"),
        ({"rate_rps": {"lo": 9, "high": 10}}, "unknown key 'lo'"),
        ({"groups": {"low": 2, "high": 4}}, "groups must be a whole number"),
        ({"prefix_ratio": {"low": 0.5, "high": 1.5}}, "prefix_ratio must be a number >= 0 and <= 1"),
    ],
)
def test_mistakes__are_reported_when_the_source_is_made(vary, message):
    with pytest.raises((ConfigError, WorkloadError), match=message):
        varied(**vary)
