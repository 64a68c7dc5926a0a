from __future__ import annotations

import json

import numpy as np
import pytest

from kvgym.errors import WorkloadError
from kvgym.workloads.blocks import Blocks


def write(folder, rows):
    file = folder / "sessions.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(file)


def chat(**extra):
    """Turn 1 continues turn 0's answer; turn 2 has another first block."""
    turns = [
        {"t": 0.0, "in": 10, "out": 3, "h": [[0, 2]]},
        {"t": 2.0, "in": 18, "out": 2, "h": [[0, 4]], "think": 1.5},
        {"t": 4.0, "in": 8, "out": 2, "h": [[9, 2]]},
    ]
    return {"id": 0, "block_size": 4, "requests": turns, **extra}


def one_at_a_time(workload, rows=slice(None)) -> int:
    """Hit tokens of an infinite cache where each prompt and its answer (less one token) stay."""
    page, nodes = workload.page_size, workload.forest.nodes
    depth, hits = np.zeros(len(nodes), np.int64), 0
    for request in workload.requests[rows]:
        best = 0
        for node in workload.forest.path(int(request["prompt_node"])):
            best = max(best, int(depth[node]))
            if depth[node] < nodes["end"][node]:
                break
        hits += min(best, int(request["prompt_tokens"]) - 1) // page * page
        kept = (int(request["prompt_tokens"]) + int(request["output_tokens"]) - 1) // page * page
        for node in workload.forest.path(int(request["output_node"])):
            depth[node] = max(depth[node], min(kept, nodes["end"][node]))
    return hits


def test_generate__continued_answers_are_on_the_next_path(tmp_path):
    workload = Blocks(write(tmp_path, [chat(start=7.0)])).generate(0)
    requests, forest = workload.requests, workload.forest
    ends = forest.nodes["end"]
    assert ends[requests["prompt_node"]].tolist() == [10, 18, 8]
    assert ends[requests["output_node"]].tolist() == [13, 20, 10]
    assert requests["output_node"][0] in forest.path(requests["prompt_node"][1])
    assert requests["prompt_node"][1] not in forest.path(requests["prompt_node"][2])
    assert requests["next"].tolist() == [1, 2, -1]
    assert requests["think_s"].tolist() == [0, 1.5, 0]
    assert requests["arrival_s"].tolist() == [7, 0, 0]
    assert one_at_a_time(workload) == 12


def test_generate__too_short_for_the_answer_continues_nothing(tmp_path):
    row = chat(start=0.0)
    row["requests"][0]["out"] = 9  # 10 + 9 > 18
    workload = Blocks(write(tmp_path, [row])).generate(0)
    nodes = workload.requests["output_node"][0], workload.requests["prompt_node"][1]
    shared = set(workload.forest.path(nodes[0])) & set(workload.forest.path(nodes[1]))
    assert max(workload.forest.nodes["end"][n] for n in shared) == 8


def test_generate__history_recorded_continues_no_answer(tmp_path):
    workload = Blocks(write(tmp_path, [chat(start=0.0)]), history="recorded").generate(0)
    prompts = [set(workload.forest.path(int(node)).tolist()) for node in workload.requests["prompt_node"]]
    assert not any(answer in prompt for answer in workload.requests["output_node"].tolist() for prompt in prompts)


def test_generate__recorded_release_needs_no_completion(tmp_path):
    workload = Blocks(write(tmp_path, [chat(start=7.0)]), release="recorded").generate(0)
    assert workload.requests["arrival_s"].tolist() == [7, 9, 11]
    assert workload.requests["next"].tolist() == [-1] * 3
    assert workload.requests["turn"].tolist() == [0, 1, 2]
    assert workload.heads.tolist() == [0, 1, 2]


def test_generate__ids_are_local_in_weka_rows(tmp_path):
    rows = [chat(start=0.0), chat(start=1.0)]
    first, second = Blocks(write(tmp_path, rows)).generate(0).requests["prompt_node"].reshape(2, 3)
    assert second[2] == first[2]
    local = Blocks(write(tmp_path, [{**row, "tool_tokens": 4} for row in rows])).generate(0).requests["prompt_node"]
    assert len(set(local)) == 6


def test_generate__sub_agents_are_sessions_released_at_their_time(tmp_path):
    agent = {"t": 1.0, "sub": "a1", "requests": [{"t": 0.5, "in": 8, "out": 1, "h": [[0, 2]]}, chat()["requests"][1]]}
    row = chat(tool_tokens=1)
    row["requests"].insert(1, agent)
    workload = Blocks(write(tmp_path, [row, chat(tool_tokens=1)]), rate_rps=0.1).generate(0)
    requests = workload.requests
    assert requests["session"].tolist() == [0, 0, 0, 1, 1, 2, 2, 2]
    assert requests["next"].tolist() == [1, 2, -1, 4, -1, 6, 7, -1]
    assert requests["arrival_s"][3] == requests["arrival_s"][0] + 1.5
    assert requests["prompt_node"][3] in workload.forest.path(requests["prompt_node"][0])  # ids of the same session


def test_generate__one_request_per_line(tmp_path):
    rows = [{"t": 1.5, "in": 20, "out": 4, "h": [[0, 1]]}, {"t": 2.5, "in": 3, "out": 4, "h": []}]
    workload = Blocks(write(tmp_path, rows)).generate(0, page_size=16)
    assert workload.requests["arrival_s"].tolist() == [1.5, 2.5]
    assert workload.requests["prompt_node"].tolist() == [1, 0]
    assert workload.requests["session"].tolist() == [0, 1]


def test_generate__closed_loop_and_context_limit(tmp_path):
    rows = [chat(), {**chat(), "requests": [{"in": 100, "out": 1, "h": [[50, 25]]}]}, chat()]
    workload = Blocks(write(tmp_path, rows), clients=2, max_context_tokens=100).generate(0)
    assert workload.clients == 2
    assert workload.heads.tolist() == [0, 3]
    assert workload.notes["left_out_too_long"] == 1
    assert len(Blocks(write(tmp_path, rows), clients=2, sessions=1).generate(0).heads) == 1


def test_generate__no_arrivals_anywhere(tmp_path):
    with pytest.raises(WorkloadError, match="1 of 1 sessions have no recorded start; give rate_rps or clients"):
        Blocks(write(tmp_path, [chat()])).generate(0)


def test_generate__repairs_only_when_told(tmp_path):
    row = chat(start=0.0)
    row["requests"][0]["h"] = [[0, 3]]
    row["requests"][1]["out"] = 0
    path = write(tmp_path, [row])
    message = (
        r"line 1, requests\[0\]: h must list the 2 full blocks of in = 10, got 3 \(rows with a wrong id count: 1, "
    )
    with pytest.raises(WorkloadError, match=message + "with an empty answer: 1"):
        Blocks(path).generate(0)
    workload = Blocks(path, repair=True).generate(0)
    assert workload.requests["output_tokens"].tolist() == [3, 1, 2]
    assert (workload.notes["repaired_id_counts"], workload.notes["repaired_empty_answers"]) == (1, 1)


@pytest.mark.parametrize(
    ("turn", "change", "message"),
    [
        (1, {"t": -1.0}, r"requests\[1\]: t must be a finite number of seconds >= 0, got -1.0"),
        (2, {"t": 1.0}, r"requests\[2\]: t must be not less than the previous entry's \(2\), got 1.0"),
        (0, {"in": 0}, r"requests\[0\]: in must be a whole number of tokens >= 1, got 0"),
        (0, {"h": [[0, 0]]}, r"requests\[0\]: h must be a list of \[first id >= 0, count >= 1\]"),
        (0, {"h": [3]}, r"requests\[0\]: h must be a list of \[first id >= 0, count >= 1\]"),
        (0, {"think": "soon"}, r"requests\[0\]: think must be a finite number of seconds >= 0, got 'soon'"),
    ],
)
def test_generate__malformed_turns(tmp_path, turn, change, message):
    row = chat(start=0.0)
    row["requests"][turn].update(change)
    with pytest.raises(WorkloadError, match=f"sessions.jsonl, line 1, {message}"):
        Blocks(write(tmp_path, [row])).generate(0)


def test_generate__malformed_sessions(tmp_path):
    with pytest.raises(WorkloadError, match="line 2: block_size must be the same in the whole file"):
        Blocks(
            write(tmp_path, [chat(), {**chat(), "block_size": 2, "requests": [{"in": 2, "out": 1, "h": [[0, 1]]}]}])
        ).generate(0)
    with pytest.raises(WorkloadError, match="line 1: requests must be a list with at least one request"):
        Blocks(write(tmp_path, [{"block_size": 4, "requests": []}])).generate(0)
    with pytest.raises(WorkloadError, match="line 2: t must be not less than the previous row's"):
        Blocks(write(tmp_path, [{"t": t, "in": 3, "out": 1, "h": []} for t in (2.0, 1.0)])).generate(0)


def test_generate__vllm_counters_of_300_real_requests(data_dir):
    """21,264 hit tokens of 82,645 (vLLM 0.13, one A6000); alternating over two: 4,240/39,877 and 5,840/42,768."""
    file = data_dir / "calibration" / "llmservingsim_sharegpt_pulse_a6000_blk16.jsonl.gz"
    workload = Blocks(str(file)).generate(0, page_size=16)
    tokens = workload.requests["prompt_tokens"]
    assert (one_at_a_time(workload), tokens.sum()) == (21_264, 82_645)
    halves = [slice(0, None, 2), slice(1, None, 2)]
    counts = [(one_at_a_time(workload, half), int(tokens[half].sum())) for half in halves]
    assert counts == [(4_240, 39_877), (5_840, 42_768)]


@pytest.mark.parametrize(
    ("name", "requests", "heads", "ideal"),
    [
        ("sharegpt_sessions_blk16.jsonl.gz", 8_869, 2_000, 0.893),
        ("loogle_longdoc_qa_blk16.jsonl.gz", 222, 19, 0.913),
        ("weka_coding_agents_small22.jsonl", 473, 22, 0.937),
    ],
)
def test_generate__real_files_and_their_ideal_hits(data_dir, name, requests, heads, ideal):
    workload = Blocks(str(data_dir / "traces" / name), clients=1).generate(0)
    assert (len(workload.requests), len(workload.heads)) == (requests, heads)
    assert one_at_a_time(workload) / workload.requests["prompt_tokens"].sum() == pytest.approx(ideal, abs=0.003)


def test_generate__weka_sessions_within_a_context_of_128k(data_dir):
    file = str(data_dir / "traces" / "weka_coding_agents.jsonl.gz")
    workload = Blocks(file, clients=4, max_context_tokens=131_072, repair=True).generate(0, page_size=16)
    assert (workload.notes["sessions"], workload.notes["left_out_too_long"]) == (130, 234)
    assert workload.notes["repaired_empty_answers"] == 3
