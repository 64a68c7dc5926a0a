"""Input that cannot be taken: the command says where it sits and what is allowed, exits with 2 and leaves nothing."""

from __future__ import annotations

import gzip
import json

import pytest

ROW = {"timestamp": 0, "input_length": 9, "output_length": 5, "hash_ids": [1, 2, 3]}
CHAT = b'{"timestamp": 1, "messages": [{"role": "user", "content": "Hi"}], "output": "Hello."}\n'
BAD_FILES = {
    "cut.gz": (gzip.compress(CHAT * 1000)[:-9], r"cut.gz, after line 1000: the gzip file is cut or broken"),
    "latin1": (CHAT + '{"prompt": "é"}'.encode("latin-1"), "latin1, line 2: not UTF-8 text"),
    "empty": (b"", "empty: the file is empty, expected one JSON object per line"),
    "no_json": (CHAT + b"{oops}\n", "no_json, line 2: expected one JSON object per line, Expecting property name"),
    "negative": (CHAT.replace(b"1,", b"-1,"), "negative, line 1: timestamp must be seconds >= 0"),
    "nan": (CHAT.replace(b"1,", b"NaN,"), "nan, line 1: timestamp must be seconds >= 0"),
    "decreasing": (CHAT + CHAT.replace(b"1,", b"0,"), "decreasing, line 2: the timestamp must be not less than the"),
    "silent": (CHAT.replace(b"Hello.", b""), "silent, line 1: the answer must have at least 1 token, got 0"),
    "counts": (b'{"input_ids": [1], "usage": {"prompt_tokens": 2}}', "counts, line 1: the prompt has 1 token ids but"),
    "misspelt": (CHAT.replace(b"messages", b"mesages"), "did you mean 'messages' for 'mesages'?"),
    "dump": (b'[{"conversation": []}]', "dump: conversation 1: conversations must be a list of messages"),
    "no_chat": (b'[{"conversations": []}]', "no_chat: no request in it (1 rows are none)"),
}


def refused(answer, folder, files, message):
    """Say whether the command failed as it should: exit code, one line, nothing written."""
    code, out, err = answer
    assert (code, out) == (2, "")
    assert err.startswith("error: ") and err.count("\n") == 1
    assert message in err
    assert sorted(path.name for path in folder.iterdir()) == sorted(files)


@pytest.mark.parametrize("name", BAD_FILES)
def test_import__bad_files(kvgym, tmp_path, name):
    content, message = BAD_FILES[name]
    (tmp_path / name).write_bytes(content)
    refused(kvgym("import", name, "--out", "out.kvgw"), tmp_path, [name], message)


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (("nowhere.jsonl",), "no trace file 'nowhere.jsonl'"),
        (("folder",), "folder is a folder, expected a file"),
        (("log", "--format", "opanai"), "unknown log format 'opanai'; did you mean 'openai'?"),
        (("log", "--tokenizer", "log"), "log is no tokenizer.json"),
        (("log", "--out", "out.csv"), "a workload file's name must end in .kvgw or .parquet, got 'out.csv'"),
        (("log", "--out", "none/out.kvgw"), "cannot write none/out.kvgw: no folder none"),
    ],
)
def test_import__bad_arguments(kvgym, tmp_path, args, message):
    if "--tokenizer" in args:
        pytest.importorskip("tokenizers", reason="the extra `data` is not installed")
    (tmp_path / "folder").mkdir()
    (tmp_path / "log").write_bytes(CHAT)
    refused(kvgym("import", *args), tmp_path, ["folder", "log"], message)


def test_import__a_mark_and_crlf_are_fine(kvgym, tmp_path):
    (tmp_path / "log.jsonl").write_bytes(b"\xef\xbb\xbf" + CHAT.replace(b"\n", b"\r\n") * 2)
    code, out, err = kvgym("import", "log.jsonl")
    assert (code, err, json.loads(out.splitlines()[-1])["requests"]) == (0, "", 2)
    assert (tmp_path / "log.kvgw").exists()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"hash_ids": ...}, "hash_ids must be a list, the field is missing"),
        ({"hash_ids": [1]}, "hash_ids must have one id per 4 tokens of input_length, got 1 for 9 (1 such rows)"),
        ({"timestamp": -1}, "timestamp must be a finite number of milliseconds >= 0, got -1"),
        ({"timestamp": float("nan")}, "timestamp must be a finite number of milliseconds >= 0, got nan"),
        ({"timestamp": 2}, "timestamp must be not less than the previous row's (3), got 2"),
        ({"output_length": 0}, "output_length must be a whole number of tokens >= 1, got 0"),
    ],
)
def test_run__bad_rows_of_a_trace(kvgym, tmp_path, change, message):
    row = {name: value for name, value in {**ROW, "timestamp": 3, **change}.items() if value is not ...}
    (tmp_path / "t.jsonl").write_text("\n".join(map(json.dumps, ({**ROW, "timestamp": 3}, row))))
    (tmp_path / "w.yaml").write_text("{source: mooncake, path: t.jsonl, block_size: 4}")
    answer = kvgym("run", "--workload", "w.yaml", "--records", "r.parquet")
    refused(answer, tmp_path, ["t.jsonl", "w.yaml"], f"t.jsonl, line 2: {message}")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (gzip.compress(json.dumps(ROW).encode())[:-9], "t.jsonl, after line 0: the gzip file is cut or broken"),
        (b"\xff\xfe", "t.jsonl, line 1: not UTF-8 text"),
        (b"", "t.jsonl: the file is empty"),
    ],
    ids=["cut", "no_utf8", "empty"],
)
def test_run__bad_trace_files(kvgym, tmp_path, content, message):
    (tmp_path / "t.jsonl").write_bytes(content)
    for source in ("mooncake", "blocks"):
        (tmp_path / "w.yaml").write_text(f"{{source: {source}, path: t.jsonl}}")
        refused(kvgym("run", "--workload", "w.yaml"), tmp_path, ["t.jsonl", "w.yaml"], message)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ("workload.rate_rps=0", "rate_rps must be > 0"),
        ("workload.rate_rps=.inf", "workload.rate_rps must be a finite number, got inf"),
        ("workload.groops=3", "unknown key 'groops' in workload; did you mean 'groups'?"),
        ("workload.source=gps", "unknown workload 'gps'; did you mean 'gsp'?"),
        ("workload.lens=3", "workload.lens must be a list, got int"),
        ("workload.rate_rps=[4]", "workload.rate_rps must be"),
        ("cluster.workers=0", "workers must be at least 1, got 0"),
        ("cluster.cost={p_tock_ms: 1}", "unknown key 'p_tock_ms' in cost; did you mean 'p_tok_ms'?"),
        ("cluster.cost=[1]", "cluster.cost must be"),
        ("cluster={capacity_tokens: 8, page_size: 16}", "capacity_tokens must be at least one page (16 tokens), got 8"),
    ],
)
def test_run__bad_settings(kvgym, tmp_path, settings, message):
    refused(kvgym("run", "--set", settings, "--records", "r.parquet"), tmp_path, [], message)


def test_run__a_list_where_a_map_belongs(kvgym, tmp_path):
    (tmp_path / "w.yaml").write_text("- source: gsp\n")
    for option in ("--workload", "--cluster"):
        message = "w.yaml must hold a map of fields, got a list"
        refused(kvgym("run", option, "w.yaml"), tmp_path, ["w.yaml"], message)


def test_run__a_thousand_imported_chats(kvgym, tmp_path, make_chats):
    chats = make_chats(1000)
    chats.write(tmp_path / "chats.jsonl")
    code, out, _ = kvgym("import", "chats.jsonl")
    facts = json.loads(out.splitlines()[-1])
    assert (code, facts["requests"], facts["sessions"]) == (0, 1000, len(set(chats.conversation)))
    (tmp_path / "mine.yaml").write_text("\n".join(f"{line}" for line in ("source: imported", "path: chats.kvgw")))
    code, out, _ = kvgym("run", "--workload", "mine.yaml", "--routing", "round_robin", "--set", "cluster.page_size=16")
    last = json.loads(out.splitlines()[-1])
    assert (code, last["completed"], last["rejected"], last["failed"]) == (0, 1000, 0, 0)
    assert 0.2 < last["hit_rate"] < 0.9
    code, out, _ = kvgym(
        "run", "--workload", "mine.yaml", "--set", "workload.rate_rps=5", "--set", "workload.limit=100"
    )
    assert json.loads(out.splitlines()[-1])["completed"] == 100
