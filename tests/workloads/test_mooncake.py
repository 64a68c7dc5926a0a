from __future__ import annotations

import gzip
import json

import numpy as np
import pytest

from kvgym.errors import WorkloadError
from kvgym.workloads.mooncake import Mooncake

GOOD = (
    {"timestamp": 0, "input_length": 9, "output_length": 5, "hash_ids": [1, 2, 3]},
    {"timestamp": 0, "input_length": 12, "output_length": 1, "hash_ids": [1, 2, 4]},
    {"timestamp": 3000, "input_length": 4, "output_length": 2, "hash_ids": [1]},
)


def write(folder, rows):
    file = folder / "trace.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(file)


def test_generate__prompts_share_blocks_and_answers_nothing(tmp_path):
    workload = Mooncake(write(tmp_path, GOOD), block_size=4).generate(1)
    requests, forest = workload.requests, workload.forest
    assert workload.block_tokens == 4
    assert requests["prompt_tokens"].tolist() == [9, 12, 4]
    assert forest.nodes["end"][requests["prompt_node"]].tolist() == [9, 12, 4]
    paths = [forest.path(int(node)).tolist() for node in requests["prompt_node"]]
    assert paths[0][:2] == paths[1][:2]
    assert paths[2] == paths[0][:1]
    assert forest.nodes["parent"][requests["output_node"]].tolist() == requests["prompt_node"].tolist()
    assert len(set(requests["output_node"].tolist())) == 3
    arrivals = requests["arrival_s"]
    assert np.all(np.diff(arrivals) >= 0)
    assert 0 < arrivals[0] < 3 < arrivals[2] < 6


def test_generate__exact_stamps_scaled(tmp_path):
    workload = Mooncake(write(tmp_path, GOOD), block_size=4, tick_s=0.0, time_scale=0.5).generate(1)
    assert workload.requests["arrival_s"].tolist() == [0, 0, 1.5]


def test_generate__limit_length_and_arrivals_of_ones_own(tmp_path):
    path = write(tmp_path, GOOD)
    assert len(Mooncake(path, block_size=4, limit=2).generate(1).requests) == 2
    short = Mooncake(path, block_size=4, max_context_tokens=13).generate(1)
    assert short.requests["prompt_tokens"].tolist() == [12, 4]
    assert short.notes["left_out_too_long"] == 1
    assert not Mooncake(path, block_size=4, clients=1).generate(1).requests["arrival_s"].any()
    assert Mooncake(path, block_size=4, rate_rps=100.0).generate(1).requests["arrival_s"][2] < 1


def test_generate__id_count_that_does_not_fit(tmp_path):
    rows = [
        *GOOD,
        {**GOOD[0], "timestamp": 4000, "hash_ids": [1, 2]},
        {**GOOD[2], "timestamp": 4000, "hash_ids": [1, 9]},
    ]
    path = write(tmp_path, rows)
    with pytest.raises(
        WorkloadError, match=r"line 4: hash_ids must have one id per 4 tokens.*got 2 for 9 \(2 such rows"
    ):
        Mooncake(path, block_size=4).generate(1)
    workload = Mooncake(path, block_size=4, repair=True).generate(1)
    nodes = workload.requests["prompt_node"]
    assert workload.notes["repaired_rows"] == 2
    assert nodes[4] == nodes[2]
    assert nodes[3] != nodes[0]
    assert workload.forest.path(nodes[3])[1] == workload.forest.path(nodes[0])[1]  # the two known blocks are shared


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"timestamp": -1}, "timestamp must be a finite number of milliseconds >= 0, got -1"),
        ({"timestamp": float("nan")}, "timestamp must be a finite number of milliseconds >= 0, got nan"),
        ({"timestamp": 5}, r"timestamp must be not less than the previous row's \(10\); or set repair: true, got 5"),
        ({"output_length": 0}, "output_length must be a whole number of tokens >= 1, got 0"),
        ({"input_length": 4.5}, "input_length must be a whole number of tokens >= 1, got 4.5"),
        ({"hash_ids": None}, "hash_ids must be a list, got None"),
        ({"hash_ids": [1, "x", 3]}, "hash_ids must be a list of whole numbers"),
    ],
)
def test_generate__malformed_rows(tmp_path, change, message):
    path = write(tmp_path, [{**GOOD[0], "timestamp": 10}, {**GOOD[0], "timestamp": 10, **change}])
    with pytest.raises(WorkloadError, match=f"trace.jsonl, line 2: {message}"):
        Mooncake(path, block_size=4).generate(1)


def test_generate__missing_field(tmp_path):
    row = {key: value for key, value in GOOD[0].items() if key != "output_length"}
    with pytest.raises(WorkloadError, match=r"line 1: output_length must be .*, the field is missing"):
        Mooncake(write(tmp_path, [row]), block_size=4).generate(1)


@pytest.mark.parametrize("page", [1, 16])
def test_generate__infinite_cache_hits_of_the_real_trace(data_dir, page):
    workload = Mooncake(str(data_dir / "traces" / "mooncake_conversation_first_half.jsonl.gz")).generate(1, page)
    oracle = data_dir / "oracle" / "mooncake-first-page1-unlimited.hits.json.gz"
    expected = np.array(json.loads(gzip.decompress(oracle.read_bytes())))
    nodes, seen = workload.forest.nodes, np.zeros(len(workload.forest), bool)
    seen[0] = True
    hits = []
    for node in workload.requests["prompt_node"]:
        path = workload.forest.path(int(node))
        known = path[seen[path]]
        hits.append(int(nodes["end"][known[-1]]) if len(known) else 0)
        seen[path] = True
    # SGLang's matched tokens per request; on pages each match is floored
    assert np.array_equal(hits, expected // page * page)
    assert workload.requests["prompt_tokens"].sum() == 72_511_056
    limited = np.minimum(hits, workload.requests["prompt_tokens"] - 1)
    assert page != 1 or limited.sum() == 25_125_617


def test_generate__de_quantised_arrivals_of_the_real_trace(data_dir):
    workload = Mooncake(str(data_dir / "traces" / "mooncake_conversation_first_half.jsonl.gz")).generate(7)
    arrivals = workload.requests["arrival_s"]
    assert len(np.unique(arrivals)) == 5606
    assert 1767 < arrivals[-1] < 1770
    gaps = np.diff(arrivals)
    assert 0.8 < gaps.std() / gaps.mean() < 1.3  # raw stamps: above 2.8


def test_generate__nothing_is_short_enough(tmp_path):
    with pytest.raises(WorkloadError, match="workload 'mooncake' has no requests"):
        Mooncake(write(tmp_path, GOOD), block_size=4, max_context_tokens=3).generate(1)
