from __future__ import annotations

import gzip
import json

import pytest

from kvgym.errors import UnknownNameError, WorkloadError
from kvgym.logs.formats import LogReader


def reader(folder, text, form="auto", pack=bytes):
    file = folder / "log"
    file.write_bytes(pack(text.encode()))
    return LogReader(file, form)


def finished(rid, **out):
    event = {"timestamp": "2026-01-01T00:00:00", "event": "request.finished", "rid": rid}
    return json.dumps({**event, "obj": {"text": f"prompt {rid}"}, "out": out})


def test_openai__one_request_per_line(tmp_path):
    entries = list(reader(tmp_path, '{"prompt": "a", "timestamp": 1}\n\n{"prompt": "b", "timestamp": 1}\n'))
    assert [(entry.where, entry.prompt, entry.time_s) for entry in entries] == [
        ("log, line 1", "a", 1),
        ("log, line 3", "b", 1),
    ]


@pytest.mark.parametrize("pack", [bytes, gzip.compress])
def test_sglang__finished_requests_behind_the_loggers_prefix(tmp_path, pack):
    lines = [
        "[2026-01-01 00:00:00] server is ready",
        '[2026-01-01 00:00:00] {"event": "request.received", "rid": "1", "obj": {"text": "prompt 1"}}',
        f"[2026-01-01 00:00:01] {finished('2', text='x')}",
        f"[2026-01-01 00:00:02] {finished('HEALTH_CHECK_1', text='x')}",
        f"[2026-01-01 00:00:02] {finished('1', text='y')}",
    ]
    log = reader(tmp_path, "\r\n".join(lines), pack=pack)
    assert [(entry.where, entry.prompt, entry.answer) for entry in log] == [
        ("log, line 3", "prompt 2", "x"),
        ("log, line 5", "prompt 1", "y"),
    ]
    assert (log.form, log.skipped) == ("sglang", 3)


def test_sglang__finished_in_another_order_than_arrived(tmp_path):
    rows = [finished(str(i), meta_info={"request_received_ts": 10.0 - i}) for i in range(2)]
    assert [entry.misfits for entry in reader(tmp_path, "\n".join(rows))] == [{}, {}]


def test_sharegpt__a_row_per_turn(tmp_path):
    said = [("human", "q1"), ("gpt", "a1"), ("human", "q2"), ("gpt", "a2")]
    record = {"conversations": [{"from": who, "value": text} for who, text in said]}
    log = reader(tmp_path, json.dumps([record, {"conversations": []}, record], indent=1))
    entries = list(log)
    assert [entry.session for entry in entries] == ["1", "1", "3", "3"]
    assert [entry.answer for entry in entries] == ["a1", "a2"] * 2
    assert entries[1].prompt.startswith(entries[0].prompt + "a1<|im_end|>\n")
    assert (log.form, log.skipped) == ("sharegpt", 1)


def test_reader__late_rows_are_noted(tmp_path):
    rows = '{"prompt": "a", "timestamp": 5}\n{"prompt": "b", "timestamp": 3.5}\n'
    first, second = reader(tmp_path, rows)
    assert first.misfits == {}
    assert "log, line 2: the timestamp must be not less than the previous row's, got 1.5 s less" in str(
        second.misfits["late_rows"]
    )


@pytest.mark.parametrize(
    ("rows", "has"), [(('"timestamp": 1', '"x": 1'), "none"), (('"x": 1', '"timestamp": 1'), "one")]
)
def test_reader__timestamps_everywhere_or_nowhere(tmp_path, rows, has):
    text = "\n".join(f'{{"prompt": "a", {row}}}' for row in rows)
    with pytest.raises(
        WorkloadError, match=f"line 2: either every row has a timestamp or no row has; this one has {has}"
    ):
        list(reader(tmp_path, text))


def test_reader__unknown_format(tmp_path):
    with pytest.raises(
        UnknownNameError, match=r"unknown log format 'shargpt'; did you mean 'sharegpt'\? known: auto, op"
    ):
        reader(tmp_path, "", "shargpt")


def test_reader__tells_how_much_it_has_read(tmp_path):
    file = tmp_path / "log"
    file.write_text('{"prompt": "a"}\n' * 1000)
    counts = []
    assert len(list(LogReader(file, watch=counts.append))) == 1000
    assert sum(counts) == file.stat().st_size
