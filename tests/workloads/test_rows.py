from __future__ import annotations

import gzip

import pytest

from kvgym.errors import WorkloadError
from kvgym.workloads.rows import locate, read_rows


def test_locate__data_folder_and_its_subfolders(tmp_path, monkeypatch):
    (tmp_path / "traces").mkdir()
    file = tmp_path / "traces" / "some.jsonl"
    file.write_text("")
    monkeypatch.setenv("KVGYM_DATA", str(tmp_path))
    assert locate("some.jsonl") == file
    assert locate(file) == file
    with pytest.raises(
        WorkloadError, match=r"no trace file 'none.jsonl'; looked at none.jsonl, .*none.jsonl, .*traces"
    ):
        locate("none.jsonl")


@pytest.mark.parametrize("pack", [bytes, gzip.compress])
def test_read_rows__mark_crlf_and_blank_lines(tmp_path, pack):
    file = tmp_path / "rows"
    file.write_bytes(pack(b'\xef\xbb\xbf{"a": 1}\r\n\r\n{"a": 2}\r\n'))
    assert [(row.where, row.data) for row in read_rows(file)] == [
        ("rows, line 1", {"a": 1}),
        ("rows, line 3", {"a": 2}),
    ]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b'{"a": 1}\n{"a": \n', "rows, line 2: expected one JSON object per line, Expecting value"),
        (b"[1, 2]\n", r"rows, line 1: expected one JSON object per line, got \[1, 2\]"),
        (gzip.compress(b'{"a": 1}\n' * 1000)[:-20], "rows: the gzip file is cut or broken"),
        (b'{"a": "\xff"}\n', "rows: not UTF-8 text"),
    ],
)
def test_read_rows__broken_files(tmp_path, content, message):
    file = tmp_path / "rows"
    file.write_bytes(content)
    with pytest.raises(WorkloadError, match=message):
        list(read_rows(file))
