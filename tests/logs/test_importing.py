from __future__ import annotations

import gzip
import io
import json
import tracemalloc

import numpy as np
import pyarrow.parquet as pq
import pytest
from rich.console import Console

from kvgym.errors import ResultsError, WorkloadError
from kvgym.logs import columnar, importing
from kvgym.logs.forms.chat import render
from kvgym.logs.importing import import_log
from kvgym.logs.rows import Row


def imported(log, folder, **options):
    out, facts = import_log(log, folder / "out.kvgw", **options)
    return columnar.read(out)[0], facts


def same_partition(one, other):
    return len(set(zip(one, other, strict=True))) == len(set(one)) == len(set(other))


def as_completion(row):
    messages = [Row("", message) for message in row["messages"]]
    answer = row["choices"][0]["message"]["content"]
    return {"timestamp": row["timestamp"], "latency_s": 0.4, "prompt": render(messages), "choices": [{"text": answer}]}


def test_import_log__sessions_are_the_conversations(tmp_path, make_chats):
    chats = make_chats(400)
    columns, facts = imported(chats.write(tmp_path / "log.jsonl"), tmp_path)
    assert same_partition(columns["session"].tolist(), chats.conversation)
    assert facts["sessions"] == len(set(chats.conversation))
    assert facts["continuations_inferred"] == 400 - facts["sessions"]
    stamps = np.array([row["timestamp"] for row in chats.rows])
    np.testing.assert_allclose(columns["arrival_s"], stamps - stamps[0])
    again = np.flatnonzero(~np.isnan(columns["think_s"]))
    assert len(again) == 400 - facts["sessions"]
    assert np.all(columns["think_s"][again] >= 0.1 - 1e-6)


def test_import_log__chat_and_completion_form_are_the_same(tmp_path, make_chats):
    chats = make_chats(100)
    chat, _ = imported(chats.write(tmp_path / "chat.jsonl"), tmp_path)
    text, _ = imported(chats.write(tmp_path / "text.jsonl", as_completion), tmp_path)
    for name in chat:
        np.testing.assert_array_equal(chat[name], text[name], err_msg=name)
    half = iter(range(100))
    mixed, _ = imported(
        chats.write(tmp_path / "mixed.jsonl", lambda row: as_completion(row) if next(half) % 2 else row), tmp_path
    )
    for name in chat:
        np.testing.assert_array_equal(chat[name], mixed[name], err_msg=name)


def test_import_log__sessions_by_name_and_without_logged_answers(tmp_path, make_chats):
    chats = make_chats(200)
    known, _ = imported(chats.write(tmp_path / "known.jsonl"), tmp_path)
    number = iter(chats.conversation)

    def bare(row):
        return {"messages": row["messages"], "timestamp": row["timestamp"]}

    named = chats.write(tmp_path / "named.jsonl", lambda row: {**bare(row), "session_id": f"c{next(number)}"})
    columns, facts = imported(named, tmp_path)
    inferred, _ = imported(chats.write(tmp_path / "bare.jsonl", bare), tmp_path)
    continued = np.isin(np.arange(200), facts_of_continued(chats))
    for made in (columns, inferred):
        assert same_partition(made["session"].tolist(), chats.conversation)
        np.testing.assert_array_equal(made["output_tokens"], np.where(continued, known["output_tokens"], 0))
    assert facts["answers_from_the_next_prompt"] == continued.sum()


def facts_of_continued(chats):
    last = {number: i for i, number in enumerate(chats.conversation)}
    return [i for i, number in enumerate(chats.conversation) if last[number] != i]


def test_import_log__a_tokenizer_by_path(tmp_path, make_chats):
    tokenizers = pytest.importorskip("tokenizers", reason="the extra `data` is not installed")
    chats = make_chats(60)
    model = tokenizers.Tokenizer(tokenizers.models.BPE(unk_token="?"))
    model.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    trainer = tokenizers.trainers.BpeTrainer(vocab_size=400, special_tokens=["?", "<|im_start|>", "<|im_end|>"])
    model.train_from_iterator([json.dumps(row) for row in chats.rows], trainer)
    model.save(str(tmp_path / "tokenizer.json"))
    columns, facts = imported(chats.write(tmp_path / "log.jsonl"), tmp_path, tokenizer=str(tmp_path / "tokenizer.json"))
    assert facts["tokens"] == "tokenizer.json"
    assert same_partition(columns["session"].tolist(), chats.conversation)
    first = model.encode(render([Row("", message) for message in chats.rows[0]["messages"]]))
    assert columns["prompt_tokens"][0] == len(first.ids)


def test_import_log__a_sharegpt_dump_is_one_format_of_the_door(tmp_path):
    said = [("human", "q1 and more"), ("gpt", "a1 it is"), ("human", "q2"), ("gpt", "a2")]
    record = {"conversations": [{"from": who, "value": text} for who, text in said]}
    (tmp_path / "dump.json.gz").write_bytes(gzip.compress(json.dumps([record] * 3).encode()))
    columns, facts = imported(tmp_path / "dump.json.gz", tmp_path)
    assert (facts["format"], facts["requests"], facts["sessions"]) == ("sharegpt", 6, 3)
    assert np.isnan(columns["arrival_s"]).all()
    assert columns["output_node"][0] in columns["node_parent"]


def test_import_log__no_text_unless_asked(tmp_path):
    (tmp_path / "log.jsonl").write_text('{"prompt": "classified half \\ud83d", "output": "top secret"}\n')
    plain, _ = import_log(tmp_path / "log.jsonl", tmp_path / "plain.parquet")
    names = set(pq.read_schema(plain).names)
    assert names == {*columnar.SCALARS, *columnar.LISTS}
    assert not any(word in plain.read_bytes() for word in (b"classified", b"secret"))
    text, _ = import_log(tmp_path / "log.jsonl", tmp_path / "text.kvgw", keep_text=True)
    kept = pq.read_table(text).select(["prompt", "answer"]).to_pylist()
    assert kept == [{"prompt": "classified half ?", "answer": "top secret"}]
    assert columnar.read(text)[0].keys() == columnar.read(plain)[0].keys()


def test_import_log__the_same_for_any_batch_size(tmp_path, make_chats, monkeypatch):
    log = make_chats(150).write(tmp_path / "log.jsonl")
    whole, _ = imported(log, tmp_path)
    monkeypatch.setattr(importing, "_BATCH_ROWS", 7)
    parts, _ = imported(log, tmp_path)
    for name in whole:
        np.testing.assert_array_equal(whole[name], parts[name], err_msg=name)


def test_import_log__memory_does_not_grow_with_the_text(tmp_path, monkeypatch):
    monkeypatch.setattr("kvgym.logs.pieces._KEPT_TOKENS", 1 << 14)
    monkeypatch.setattr(importing, "_BATCH_CHARS", 1 << 16)
    rng = np.random.default_rng(1)
    with (tmp_path / "log.jsonl").open("w") as log:
        for _ in range(200):  # 3 MB of text, a million different tokens: 8 MB of ids
            words = "".join(map("{:03d}".format, rng.integers(0, 1000, 5000)))
            log.write(json.dumps({"prompt": words, "output": "yes"}) + "\n")
    (tmp_path / "warm.jsonl").write_text('{"prompt": "a"}\n')
    import_log(tmp_path / "warm.jsonl", tmp_path / "warm.kvgw")  # compiles
    tracemalloc.start()
    try:
        columns, _ = imported(tmp_path / "log.jsonl", tmp_path)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert columns["prompt_tokens"].sum(dtype=np.int64) == 1_000_000
    assert peak < 4e6


def test_import_log__progress_of_a_long_import(tmp_path, monkeypatch):
    monkeypatch.setattr(importing, "_LINE_S", 0.0)
    (tmp_path / "log.jsonl").write_text('{"prompt": "a"}\n')
    for terminal in (False, True):
        shown = io.StringIO()
        import_log(tmp_path / "log.jsonl", tmp_path / "o.kvgw", console=Console(file=shown, force_terminal=terminal))
        assert "reading log.jsonl" in shown.getvalue()
        assert "100%" in shown.getvalue()


def test_import_log__default_name_in_the_current_folder(tmp_path, monkeypatch):
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "my.log.jsonl").write_text('{"prompt": "a"}\n')
    monkeypatch.chdir(tmp_path)
    assert str(import_log(tmp_path / "data" / "my.log.jsonl")[0]) == "my.log.kvgw"


def test_import_log__repairs_only_when_told(tmp_path):
    rows = [
        {"prompt": "a", "timestamp": 5, "output": "x"},
        {"prompt": "b", "timestamp": 4, "output": ""},
        {"input_ids": [1, 2], "timestamp": 6, "output": "", "usage": {"prompt_tokens": 3}},
    ]
    log = tmp_path / "log.jsonl"
    log.write_text("\n".join(map(json.dumps, rows)))
    message = (
        r"log\.jsonl, line 2: the answer must have at least 1 token, got 0 \(rows in all: "
        r"1 earlier than the row before, 2 with an answer of 0 tokens, 1 with a wrong id count\); --repair accepts them"
    )
    with pytest.raises(WorkloadError, match=message):
        imported(log, tmp_path)
    assert list(tmp_path.iterdir()) == [log]
    columns, facts = imported(log, tmp_path, repair=True)
    assert columns["arrival_s"].tolist() == [1, 0, 2]
    assert columns["output_tokens"].tolist() == [1, 1, 1]
    assert [facts[f"repaired_{kind}"] for kind in ("late_rows", "empty_answers", "id_counts")] == [1, 2, 1]


@pytest.mark.parametrize(
    ("out", "message"),
    [
        ("out.txt", r"a workload file's name must end in \.kvgw or \.parquet, got .*out\.txt"),
        ("none/out.kvgw", "cannot write .*no folder"),
        ("folder.kvgw", "cannot write .*: it is a folder"),
        ("log.kvgw", "cannot write .*: it is the log itself"),
    ],
)
def test_import_log__where_it_cannot_write(tmp_path, out, message):
    (tmp_path / "folder.kvgw").mkdir()
    (tmp_path / "log.kvgw").write_text('{"prompt": "a"}\n')
    with pytest.raises(ResultsError, match=message):
        import_log(tmp_path / "log.kvgw", tmp_path / out)
    assert (tmp_path / "log.kvgw").read_text() == '{"prompt": "a"}\n'


def test_import_log__a_full_disk_leaves_the_old_file(tmp_path, monkeypatch):
    (tmp_path / "log.jsonl").write_text('{"prompt": "a"}\n')
    (tmp_path / "out.kvgw").write_text("old")

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("kvgym.forest.diskforest._allocate", full)
    (tmp_path / "log.jsonl").write_text(json.dumps({"input_ids": list(range(100))}) + "\n")
    with pytest.raises(ResultsError, match=r"cannot write .*out\.kvgw: No space left on device"):
        import_log(tmp_path / "log.jsonl", tmp_path / "out.kvgw")
    assert (tmp_path / "out.kvgw").read_text() == "old"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["log.jsonl", "out.kvgw"]
