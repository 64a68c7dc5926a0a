from __future__ import annotations

import pytest

from kvgym.errors import WorkloadError
from kvgym.workloads.fixed import Fixed

CHAT = (
    {"path": [["a", 10], ["b", 5]], "answer": "x", "output_tokens": 7, "session": "s"},
    {"path": [["a", 10], ["c", 3]], "arrival_s": 2.5, "priority": 1},
    {"path": [["a", 10], ["b", 5], ["x", 7], ["d", 9]], "session": "s", "think_s": 1.5, "max_new_tokens": 20},
)


def test_generate__paths():
    workload = Fixed(CHAT).generate(0)
    requests, nodes = workload.requests, workload.forest.nodes
    assert requests["prompt_tokens"].tolist() == [15, 13, 31]
    assert nodes["end"][requests["prompt_node"]].tolist() == [15, 13, 31]
    assert nodes["end"][requests["output_node"]].tolist() == [22, 14, 32]
    assert requests["output_node"][0] in workload.forest.path(requests["prompt_node"][2])
    assert requests["next"].tolist() == [2, -1, -1]
    assert requests["turn"].tolist() == [0, 0, 1]
    assert requests["max_new_tokens"].tolist() == [7, 1, 20]
    assert requests["think_s"].tolist() == [0, 0, 1.5]
    assert workload.heads.tolist() == [0, 1]
    assert requests["prompt_chars"].tolist() == [60, 52, 124]


def test_generate__paths_on_pages():
    workload = Fixed(CHAT).generate(0, page_size=4)
    nodes, requests = workload.forest.nodes, workload.requests
    assert nodes["end"][requests["prompt_node"]].tolist() == [12, 12, 28]
    assert nodes["end"][requests["output_node"]].tolist() == [20, 12, 32]


def test_generate__ids_and_their_answers():
    rows = (
        {"ids": [1, 2, 3], "tokens": 11, "output_tokens": 6, "answer": [1, 2, 3, 4, 5]},
        {"ids": [1, 2, 3, 4, 5, 6]},
        {"ids": [1, 2, 3], "tokens": 11, "output_tokens": 6},
    )
    workload = Fixed(rows, block_tokens=4).generate(0)
    nodes, requests = workload.forest.nodes, workload.requests
    assert requests["prompt_tokens"].tolist() == [11, 24, 11]
    assert nodes["end"][requests["output_node"]].tolist() == [17, 25, 17]
    assert requests["output_node"][0] in workload.forest.path(requests["prompt_node"][1])
    assert requests["prompt_node"][2] == requests["prompt_node"][0]
    assert requests["output_node"][2] not in workload.forest.path(requests["prompt_node"][1])


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ((), "rows is empty"),
        (({"path": [["a", 1]], "outputs": 3},), "row 0 has the unknown key 'outputs'; did you mean 'output_tokens'"),
        (({"ids": [1]}, {"path": [["a", 1]]}), "row 1 must give its prompt as `ids`"),
        (({"path": [["a", 3]]}, {"path": [["a", 4]]}), "row 1 gives 'a' 4 tokens, but an earlier row gave it 3"),
        (({"ids": [1], "answer": [2, 3]},), "row 0: answer must start with the prompt's ids"),
        (({"ids": [1], "think_s": -1.0},), "row 0: think_s must be a finite number of seconds >= 0, got -1.0"),
        (({"path": []},), "prompt_tokens must be >= 1"),
        (({"ids": [1], "output_tokens": 0},), "row 0: output_tokens must be a whole number of tokens >= 1, got 0"),
        (({"ids": [1], "output_tokens": 2**33},), "row 0: output_tokens must be .* <= 268,435,456, got 8589934592"),
        (({"ids": [1], "output_tokens": "4"},), "row 0: output_tokens must be a whole number .*, got '4'"),
        (({"ids": [1], "arrival_s": "now"},), "row 0: arrival_s must be a finite number of seconds >= 0, got 'now'"),
        (({"ids": [1], "priority": 2**31},), "row 0: priority must be a whole number of 32 bits"),
        (({"ids": [1], "session": [1]},), "row 0: session must be text or a whole number"),
        (({"ids": 3},), "row 0: ids must be a list, got 3"),
        (({"ids": [1, "b"]},), "row 0: ids must be a list of whole numbers"),
        (({"ids": [1, 2, 3], "tokens": 2},), "row 0: tokens must be a length that needs 3 ids of 1 tokens, got 2"),
        (({"ids": [1], "tokens": "1"},), "row 0: tokens must be a whole number of tokens"),
        (({"ids": [1], "answer": 3},), "row 0: answer must be a list, got 3"),
        (({"path": "abc"},), "row 0: path must be a list, got 'abc'"),
        (({"path": [["a"]]},), "row 0: path must be a list of .key, tokens."),
        (({"path": [["a", 1.5]]},), "row 0: path must be a list of .key, tokens."),
        (({"path": [["a", 2**40]]},), "row 0: path must be a list of .key, tokens."),
        (({"path": [["a", 2**27], ["b", 2**27], ["c", 1]]},), "row 0: path must be at most"),
        (({"path": [["a", 1]], "answer": ["x"]},), "row 0: answer must be a key"),
    ],
)
def test_generate__wrong_rows(rows, message):
    with pytest.raises(WorkloadError, match=message):
        Fixed(rows).generate(0)


def test_classes__stand_in_the_rows():
    rows = ({"path": [["a", 3]], "tenant": 2, "priority": -1}, {"path": [["a", 3]]})
    requests = Fixed(rows).generate(0).requests
    assert (requests["tenant"].tolist(), requests["priority"].tolist()) == ([2, 0], [-1, 0])


@pytest.mark.parametrize("value", ["one", 1.5, True, None, 2**31])
def test_classes__must_be_whole_numbers(value):
    with pytest.raises(WorkloadError, match="fixed: row 0: tenant must be a whole number of 32 bits"):
        Fixed(({"path": [["a", 3]], "tenant": value},)).generate(0)
