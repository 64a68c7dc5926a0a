from __future__ import annotations

import gzip

import pytest

from kvgym.errors import WorkloadError
from kvgym.logs.rows import locate, open_bytes, read_lines, read_rows


def test_locate__data_folder_and_its_subfolders(tmp_path, monkeypatch):
    (tmp_path / "traces").mkdir()
    file = tmp_path / "traces" / "some.jsonl"
    file.write_text("")
    monkeypatch.setenv("KVGYM_DATA", str(tmp_path))
    assert locate("some.jsonl") == file
    assert locate(file) == file
    with pytest.raises(WorkloadError, match=r"no file 'none.jsonl'; looked at none.jsonl, .*none.jsonl, .*traces"):
        locate("none.jsonl")
    with pytest.raises(WorkloadError, match="traces is a folder, expected a file"):
        locate("traces")


def test_open_bytes__says_why_it_cannot(tmp_path):
    with (
        pytest.raises(WorkloadError, match=r"cannot read .*absent: No such file or directory"),
        open_bytes(tmp_path / "absent"),
    ):
        pass


@pytest.mark.parametrize("pack", [bytes, gzip.compress])
def test_read_lines__tells_how_much_it_has_read(tmp_path, pack):
    file = tmp_path / "rows"
    file.write_bytes(pack(b"line\n" * 1_000_000))
    counts = []
    assert sum(1 for _ in read_lines(file, counts.append)) == 1_000_000
    assert sum(counts) == file.stat().st_size


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
        (gzip.compress(b'{"a": 1}\n' * 1000)[:-20], r"rows, after line \d+: the packed file is cut or broken"),
        (b'{"a": 1}\n{"a": "\xff"}\n', "rows, line 2: not UTF-8 text .invalid start byte at byte 7"),
        (b"", "rows: the file is empty, expected one JSON object per line"),
        (b"\xef\xbb\xbf\r\n \n", "rows: the file is empty"),
    ],
    ids=["no_json", "no_object", "cut", "no_utf8", "empty", "blank"],
)
def test_read_rows__broken_files(tmp_path, content, message):
    file = tmp_path / "rows"
    file.write_bytes(content)
    with pytest.raises(WorkloadError, match=message):
        list(read_rows(file))
