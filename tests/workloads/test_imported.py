from __future__ import annotations

import numpy as np
import pytest

from kvgym.config.options import build
from kvgym.errors import ConfigError, WorkloadError
from kvgym.logs.forms.chat import render, split
from kvgym.logs.importing import import_log
from kvgym.logs.rows import Row
from kvgym.logs.tokens import FallbackTokeniser
from kvgym.workloads.imported import Imported


@pytest.fixture
def make_file(tmp_path, make_chats):
    """Maker of workload files: (number of requests, change of each row) -> (path, chats)."""

    def make(requests, change=lambda row: row):
        chats = make_chats(requests)
        out, _ = import_log(chats.write(tmp_path / "log.jsonl", change), tmp_path / "log.kvgw")
        return str(out), chats

    return make


def tokens_of(row):
    """Ids of prompt and answer, straight from the row."""
    tokenise = FallbackTokeniser()
    prompt = render([Row("", message) for message in row["messages"]])
    answer = row["choices"][0]["message"]["content"]
    return [np.concatenate(tokenise(split(text))).tolist() for text in (prompt, answer)]


def common(one, other):
    return next((k for k, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))


@pytest.mark.parametrize("page", [1, 5, 16])
def test_generate__shares_what_the_texts_share_on_any_page(make_file, page):
    path, chats = make_file(60)
    workload = Imported(path).generate(0, page)
    requests, forest = workload.requests, workload.forest
    pairs = [tokens_of(row) for row in chats.rows]
    whole = [prompt + answer for prompt, answer in pairs]
    assert requests["prompt_tokens"].tolist() == [len(prompt) for prompt, _ in pairs]
    assert requests["output_tokens"].tolist() == [len(answer) for _, answer in pairs]
    ends = forest.nodes["end"]
    for i, (prompt, _) in enumerate(pairs):
        path_i = forest.path(int(requests["prompt_node"][i]))
        assert ends[path_i[-1]] == len(prompt) // page * page
        for j in range(i):
            shared = set(path_i) & set(forest.path(int(requests["output_node"][j])))
            assert max((int(ends[node]) for node in shared), default=0) == common(prompt, whole[j]) // page * page


def test_generate__recorded_times_and_think_times(make_file):
    path, chats = make_file(80)
    workload = Imported(path).generate(0)
    requests = workload.requests
    first = {number: i for i, number in reversed(list(enumerate(chats.conversation)))}
    assert sorted(workload.heads.tolist()) == sorted(first.values())
    stamps = np.array([row["timestamp"] for row in chats.rows]) - chats.rows[0]["timestamp"]
    np.testing.assert_allclose(requests["arrival_s"][workload.heads], stamps[workload.heads])
    for i in np.flatnonzero(requests["next"] >= 0):
        later = requests["next"][i]
        assert chats.conversation[i] == chats.conversation[later]
        assert requests["think_s"][later] == pytest.approx(stamps[later] - stamps[i] - 0.4)
        assert requests["output_node"][i] in workload.forest.path(int(requests["prompt_node"][later]))


def test_generate__without_latencies_turns_come_at_their_recorded_times(make_file):
    path, chats = make_file(80, lambda row: {name: row[name] for name in row if name != "latency_s"})
    workload = Imported(path).generate(0)
    stamps = np.array([row["timestamp"] for row in chats.rows]) - chats.rows[0]["timestamp"]
    np.testing.assert_allclose(workload.requests["arrival_s"], stamps)
    assert np.all(workload.requests["next"] == -1)
    assert workload.requests["turn"].max() > 1
    assert workload.heads.tolist() == list(range(80))
    slower = Imported(path, time_scale=2.0, release="recorded").generate(0)
    np.testing.assert_allclose(slower.requests["arrival_s"], 2 * stamps)
    waits = Imported(path, release="think", think_s=3.0).generate(0)
    assert len(waits.heads) == len(set(chats.conversation))
    assert set(waits.requests["think_s"]) == {3.0}


def test_generate__rate_and_clients_of_ones_own(make_file):
    path, _ = make_file(80)
    rate = Imported(path, rate_rps=0.5).generate(1)
    starts = rate.requests["arrival_s"][rate.heads]
    assert np.all(np.diff(starts) > 0)
    assert starts[-1] == pytest.approx(2 * len(rate.heads), rel=0.5)
    closed = Imported(path, clients=3).generate(1)
    assert (closed.clients, closed.requests["arrival_s"].max()) == (3, 0)


def test_generate__rows_out_of_order_arrive_in_order(tmp_path):
    (tmp_path / "log.jsonl").write_text(
        '{"prompt": "late", "timestamp": 9}\n{"prompt": "the early one", "timestamp": 7}\n'
    )
    import_log(tmp_path / "log.jsonl", tmp_path / "log.kvgw", repair=True)
    requests = Imported(str(tmp_path / "log.kvgw")).generate(0).requests
    assert requests["arrival_s"].tolist() == [0, 2]
    assert requests["prompt_tokens"].tolist() == [3, 1]


def test_generate__answers_that_nobody_knows(tmp_path):
    (tmp_path / "log.jsonl").write_text('{"prompt": "a", "max_tokens": 5}\n{"prompt": "b", "max_tokens": 500}\n')
    import_log(tmp_path / "log.jsonl", tmp_path / "log.kvgw")
    workload = Imported(str(tmp_path / "log.kvgw"), clients=1, output_tokens=50).generate(0)
    assert workload.requests["output_tokens"].tolist() == [5, 50]
    assert workload.requests["max_new_tokens"].tolist() == [5, 500]
    ends = workload.forest.nodes["end"]
    assert ends[workload.requests["output_node"]].tolist() == [6, 51]


def test_generate__stamps_in_whole_seconds_are_spread(tmp_path):
    rows = "".join(f'{{"prompt": "p{i}", "created": {i // 10}}}\n' for i in range(100))
    (tmp_path / "log.jsonl").write_text(rows)
    import_log(tmp_path / "log.jsonl", tmp_path / "log.kvgw")
    source = Imported(str(tmp_path / "log.kvgw"))
    arrivals = source.generate(1).requests["arrival_s"]
    assert len(set(arrivals)) == 100
    assert np.array_equal(np.floor(arrivals), np.repeat(np.arange(10), 10))
    assert not np.array_equal(arrivals, source.generate(2).requests["arrival_s"])
    exact = Imported(str(tmp_path / "log.kvgw"), tick_s=0.0).generate(1).requests["arrival_s"]
    assert len(set(exact)) == 10


def test_generate__history_recorded_continues_no_answer(make_file):
    path, _ = make_file(80)
    workload = Imported(path, history="recorded").generate(0)
    paths = [set(workload.forest.path(int(node)).tolist()) for node in workload.requests["prompt_node"]]
    assert not any(answer in nodes for answer in workload.requests["output_node"].tolist() for nodes in paths)


def test_generate__limit_and_longest_context(make_file):
    path, chats = make_file(80)
    whole = Imported(path).generate(0)
    part = Imported(path, limit=30).generate(0)
    assert np.array_equal(part.requests["prompt_tokens"], whole.requests["prompt_tokens"][:30])
    assert len(part.heads) == len(set(chats.conversation[:30]))
    total = whole.requests["prompt_tokens"] + whole.requests["output_tokens"]
    limit = int(np.median(total))
    short = Imported(path, max_context_tokens=limit).generate(0)
    assert len(short.requests) == (total <= limit).sum() == 80 - short.notes["left_out_too_long"]
    with pytest.raises(WorkloadError, match=r"log\.kvgw: no request is left \(80 exceed max_context_tokens = 1\)"):
        Imported(path, max_context_tokens=1).generate(0)


def test_generate__characters_are_those_of_the_forest(make_file):
    path, _ = make_file(40)
    workload = Imported(path).generate(0)
    requests, nodes = workload.requests, workload.forest.nodes
    assert np.array_equal(nodes["chars_end"][requests["prompt_node"]], requests["prompt_chars"])
    assert requests["prompt_chars"].sum() / requests["prompt_tokens"].sum() == pytest.approx(
        workload.notes["chars_per_token"], rel=0.01
    )


def test_generate__no_arrivals_anywhere(tmp_path):
    (tmp_path / "log.jsonl").write_text('{"prompt": "a"}\n')
    import_log(tmp_path / "log.jsonl", tmp_path / "log.kvgw")
    with pytest.raises(WorkloadError, match=r"log\.jsonl has no timestamps; give rate_rps or clients"):
        Imported(str(tmp_path / "log.kvgw")).generate(0)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"output_tokens": 0}, "output_tokens must be a whole number >= 1, got 0"),
        ({"limit": 0}, "limit must be a whole number >= 1, got 0"),
        ({"time_scale": 0.0}, "time_scale must be a number > 0, got 0.0"),
        ({"release": "recorded", "clients": 2}, "release: recorded takes the log's times"),
    ],
)
def test_imported__wrong_options(options, message):
    with pytest.raises(WorkloadError, match=message):
        Imported("log.kvgw", **options)


def test_imported__needs_a_path():
    with pytest.raises(ConfigError, match="workload lacks 'path'"):
        build(Imported, {}, "workload")


def test_generate__keeps_tenants_and_priorities(make_file):
    def change(row):
        long = len(str(row["messages"])) > 300
        return {**row, "user": "long" if long else "short", "priority": int(long)}

    path, chats = make_file(30, change)
    requests = Imported(path).generate(0).requests
    long = np.array([len(str(row["messages"])) > 300 for row in chats.rows])
    assert 0 < long.sum() < 30
    assert (requests["priority"] == long).all()
    assert (requests["tenant"] == (long if long.sum() <= 15 else ~long)).all()
