"""Input that cannot be taken: the command says where it sits and what is allowed, exits with 2 and leaves nothing.

Two runs into one folder: tests/harness. Options of controllers: tests/controllers/test_options.py. Broken plug-ins:
tests/test_registry.py.
"""

from __future__ import annotations

import errno
import gzip
import json
import os
from pathlib import Path

import gymnasium
import pyarrow.parquet
import pytest

from kvgym.errors import KVGymError

ROW = {"timestamp": 0, "input_length": 9, "output_length": 5, "hash_ids": [1, 2, 3]}
CHAT = b'{"timestamp": 1, "messages": [{"role": "user", "content": "Hi"}], "output": "Hello."}\n'
BAD_FILES = {
    "cut.gz": (gzip.compress(CHAT * 1000)[:-9], r"cut.gz, after line 1000: the packed file is cut or broken"),
    "latin1": (CHAT + '{"prompt": "é"}'.encode("latin-1"), "latin1, line 2: not UTF-8 text"),
    "empty": (b"", "empty: the file is empty, expected one JSON object per line"),
    "no_json": (CHAT + b"{oops}\n", "no_json, line 2: expected one JSON object per line, Expecting property name"),
    "negative": (CHAT.replace(b"1,", b"-1,"), "negative, line 1: timestamp must be seconds >= 0"),
    "nan": (CHAT.replace(b"1,", b"NaN,"), "nan, line 1: timestamp must be seconds >= 0"),
    "long": (CHAT.replace(b"1,", b"9" * 400 + b","), "long, line 1: timestamp must be seconds >= 0"),
    "late": (CHAT.replace(b"1,", b"1e308,"), "late, line 1: timestamp must be seconds >= 0"),
    "decreasing": (CHAT + CHAT.replace(b"1,", b"0,"), "decreasing, line 2: the timestamp must be not less than the"),
    "silent": (CHAT.replace(b"Hello.", b""), "silent, line 1: the answer must have at least 1 token, got 0"),
    "counts": (b'{"input_ids": [1], "usage": {"prompt_tokens": 2}}', "counts, line 1: the prompt has 1 token ids but"),
    "misspelt": (CHAT.replace(b"messages", b"mesages"), "did you mean 'messages' for 'mesages'?"),
    "dump": (b'[{"conversation": []}]', "dump, entry 1: expected a prompt in one of the fields"),
    "huge": (
        b'{"prompt": "Hi", "timestamp": %s}' % (b"9" * 5000),
        "huge, line 1: cannot read this JSON object: Exceeds the",
    ),
    "deep": (b'{"a":' * 100_000, "deep, line 1: cannot read this JSON object: maximum recursion depth"),
    "binary": (bytes(range(256)), "binary, line 2: not UTF-8 text"),
    "list": (CHAT + b"[1, 2]\n", "list, line 2: expected one JSON object per line, got [1, 2]"),
    "tokens": (
        CHAT.replace(b"{", b'{"max_tokens": 1e9, '),
        "tokens, line 1: max_tokens must be a whole number of tokens",
    ),
    "many": (CHAT.replace(b"{", b'{"max_tokens": 99999999999, ', 1), "many, line 1: max_tokens must be a whole number"),
    "ids": (b'{"input_ids": [1, 99999999999]}', "ids, line 1: input_ids must be a list of token ids in 0..2147483647"),
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
        (("nowhere.jsonl",), "no file 'nowhere.jsonl'"),
        (("/dev/null",), "no file '/dev/null'"),
        (("n" * 3000,), "File name too long"),
        (("log", "--out", "folder/x/y.kvgw"), "cannot write folder/x/y.kvgw: no folder folder/x"),
        (("log", "--out", "log/y.kvgw"), "cannot write log/y.kvgw: "),
        (("log", "--out", "folder.kvgw"), "cannot write folder.kvgw: it is a folder"),
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
    (tmp_path / "folder.kvgw").mkdir()
    (tmp_path / "log").write_bytes(CHAT)
    refused(kvgym("import", *args), tmp_path, ["folder", "folder.kvgw", "log"], message)


def test_import__a_mark_and_crlf_are_fine(kvgym, tmp_path):
    (tmp_path / "log.jsonl").write_bytes(b"\xef\xbb\xbf" + CHAT.replace(b"\n", b"\r\n") * 2)
    code, out, err = kvgym("import", "log.jsonl", "--json")
    assert (code, err, json.loads(out)["requests"]) == (0, "", 2)
    assert (tmp_path / "log.kvgw").exists()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"hash_ids": ...}, "hash_ids must have one id per"),
        ({"hash_ids": [1]}, "hash_ids must have one id per 4 tokens of input_length, got 1 for 9 (1 such rows)"),
        ({"timestamp": -1}, "timestamp must be a finite number of milliseconds >= 0, got -1"),
        ({"timestamp": float("nan")}, "timestamp must be a finite number of milliseconds >= 0, got nan"),
        ({"timestamp": 2}, "timestamp must be not less than the previous row's (3); or set repair: true, got 2"),
        ({"output_length": 0}, "output_length must be a whole number of tokens >= 1, got 0"),
        ({"output_length": 2**40}, "output_length must be a whole number of tokens <= 268,435,456, got 1099511627776"),
        ({"timestamp": 1e300}, "timestamp must be a finite number of milliseconds >= 0, got 1e+300"),
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
        (gzip.compress(json.dumps(ROW).encode())[:-9], "t.jsonl, after line 0: the packed file is cut or broken"),
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
        pytest.param(f"workload.rate_rps=1{'0' * 400}", "workload.rate_rps must be a finite number", id="400 digits"),
        ("workload.groops=3", "unknown key 'groops' in workload; did you mean 'groups'?"),
        ("workload.source=gps", "unknown workload 'gps'; did you mean 'gsp'?"),
        ("workload.lens=3", "workload.lens must be a list, got int"),
        ("workload.rate_rps=[4]", "workload.rate_rps must be"),
        ("cluster.workers=0", "workers must be a whole number >= 1 and <= 100,000, got 0"),
        ("cluster.cost={p_tock_ms: 1}", "unknown key 'p_tock_ms' in cost; did you mean 'p_tok_ms'?"),
        ("cluster.cost=[1]", "cluster.cost must be"),
        ("workload={source: gsp, source: fixed}", "is not valid YAML: the key 'source' is given twice"),
        (
            "workload.groups=999999999999",
            "at most 100,000,000 requests are possible",
        ),
        ("workload.output_tokens=99999999999", "output_tokens must be a whole number >= 1 and <= 268,435,456"),
        ("workload.lens=[99999999999]", "lens must be a whole number >= 1 and <= 268,435,456, got 99999999999"),
        ("workload.zipf=1e300", "zipf must be a number >= 0 and <= 100, got 1e+300"),
        ("workload.cv=1e300", "cv in 0..1000, got rate_rps 20.0 and cv 1e+300"),
        ("workload.clients=99999999999", "clients must be 0 (open loop) or a number of closed-loop clients"),
        ("cluster.workers=1.5", "cluster.workers must be a whole number, got float ('1.5')"),
        (
            "cluster.chunk_tokens=99999999999999999999",
            "chunk_tokens must be a whole number >= 1 and <= 1,099,511,627,776",
        ),
        (
            "cluster.max_running=99999999999999999999",
            "max_running must be a whole number >= 1 and <= 1,099,511,627,776",
        ),
        ("cluster.speed=[1, 1, 0, 1]", "speed must be a number >= 1e-06 and <= 1e+06, got 0.0"),
        ("cluster.speed=1e308", "speed must be a number >= 1e-06 and <= 1e+06, got 1e+308"),
        ("cluster.request_overhead_s=-1", "request_overhead_s must be a number >= 0 and <= 1e+06, got -1.0"),
        ("cluster.cost={p0_ms: 1e300, d0_ms: 1}", "p0_ms must be a number >= 0 and <= 1e+09, got 1e+300"),
        ("cluster.cost={p0_ms: 1e-320, d0_ms: 1}", "prefill and decode steps must take time"),
        ("cluster.cost={model: lineer}", "unknown cost model 'lineer'; did you mean 'linear'?"),
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


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "must hold a map of fields, got nothing"),
        (b"source: gsp\ngroups: [", "is not valid YAML: while parsing a flow node"),
        (b"source: gsp\nsource: fixed\n", "the key 'source' is given twice"),
        (b"source: &a [*a]\n", "holds more than 1,000,000 values; does an alias contain itself?"),
        (b"source: " + b"[" * 5000, "lists or maps lie too deep in each other"),
        (b"source: gsp\n---\nsource: gsp\n", "expected a single document"),
        (b"1: 2\nsource: gsp\n", "unknown key 1 in workload"),
        (bytes(range(256)), "cannot read configuration w.yaml"),
        (b"!!python/object/apply:os.getcwd []", "could not determine a constructor"),
    ],
    ids=["empty", "open", "twice", "endless", "deep", "two", "number", "binary", "object"],
)
def test_run__bad_yaml(kvgym, tmp_path, content, message):
    (tmp_path / "w.yaml").write_bytes(content)
    refused(kvgym("run", "--workload", "w.yaml"), tmp_path, ["w.yaml"], message)


GRID = {
    "name": "grid",
    "workloads": [{"use": {"source": "gsp", "groups": 4, "prompts_per_group": 2, "lens": [64]}, "name": "w"}],
    "clusters": [{"use": {"workers": 2, "capacity_tokens": 500}, "name": "two"}],
    "routing": ["random"],
    "eviction": ["lru"],
    "seeds": 1,
}
BAD_GRIDS = {
    "key": ({"sedes": 3}, "unknown key 'sedes' in compare; did you mean 'seeds'?"),
    "workload": (
        {"workloads": [{"uze": "gsp_small"}]},
        "unknown key 'uze' in compare.workloads.0; did you mean 'use'?",
    ),
    "field": (
        {"workloads": [{"use": {"source": "gsp", "groop": 1}}]},
        "unknown key 'groop' in workload; did you mean 'groups'?",
    ),
    "cluster": (
        {"clusters": [{"use": {"wrokers": 2}}]},
        "unknown key 'wrokers' in cluster; did you mean 'workers'?",
    ),
    "cost": ({"clusters": [{"use": {"cost": {"p_0_ms": 1}}}]}, "unknown key 'p_0_ms' in cost; did you mean 'p0_ms'?"),
    "no_cost": ({"clusters": [{"use": {"cost": "l40-lama"}}]}, "unknown cost preset 'l40-lama'"),
    "routing": ({"routing": [{"use": "random", "optoins": {}}]}, "unknown key 'optoins' in compare.routing.0"),
    "option": (
        {"routing": [{"use": "cache_aware", "options": {"cache_treshold": 0.5}}]},
        "routing controller 'cache_aware' does not take {'cache_treshold': 0.5}",
    ),
    "range": (
        {"routing": [{"use": "cache_aware", "options": {"cache_threshold": 2}}]},
        "cache_threshold must be a number >= 0 and <= 1, got 2",
    ),
    "name": ({"name": "a\0b"}, "name must be usable as a folder name"),
    "controller": ({"routing": ["cash_aware"]}, "unknown routing controller 'cash_aware'; did you mean 'cache_aware'?"),
    "map": ({"clusters": {"use": "l40x4"}}, "compare.clusters must be a list, got a map"),
    "list": ({"workloads": [["gsp_small"]]}, "compare.workloads.0 must be"),
    "options": (
        {"routing": [{"use": "random", "options": [1]}]},
        "compare.routing.0.options must be a map, got a list",
    ),
    "workers": ({"clusters": [{"use": {"workers": 0}}]}, "workers must be a whole number >= 1 and <= 100,000, got 0"),
    "seeds": ({"seeds": [1, 1]}, "seeds must be distinct and not negative"),
    "trace": (
        {"workloads": [{"use": {"source": "mooncake", "path": "t.jsonl"}, "name": "t"}]},
        "t.jsonl, line 1: hash_ids must have one id per",
    ),
    "model": (
        {"clusters": [{"use": {"cost": {"model": "analytic", "cached_ms": 2.0, "miss_ms": 1.0}}, "name": "c"}]},
        "cached_ms must not exceed miss_ms",
    ),
}


def compare(kvgym, folder, change=None, *args):
    (folder / "grid.yaml").write_text(json.dumps(GRID | (change or {})))
    return kvgym("compare", "grid.yaml", "--jobs", "1", "--out", "out", *args)


@pytest.mark.parametrize("name", BAD_GRIDS)
def test_compare__bad_grids_leave_no_folder(kvgym, tmp_path, name):
    change, message = BAD_GRIDS[name]
    (tmp_path / "t.jsonl").write_text('{"timestamp": 0, "input_length": 9, "output_length": 5}\n')
    code, out, err = compare(kvgym, tmp_path, change)
    assert (code, out) == (2, "")
    assert err.splitlines()[-1].startswith("error: ") and message in err.splitlines()[-1]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["grid.yaml", "t.jsonl"]


def test_compare__a_prompt_longer_than_any_worker_is_rejected_and_the_run_goes_on(kvgym, tmp_path):
    rows = [{"path": [["a", tokens]], "session": i} for i, tokens in enumerate((501, 100))]
    rows[0]["path"][0][0] = "b"
    code, out, _ = compare(
        kvgym, tmp_path, {"workloads": [{"use": {"source": "fixed", "rows": rows}, "name": "w"}]}, "--json"
    )
    (cell,) = json.loads(out)["cells"]
    assert (code, cell["completed"], cell["rejected"], cell["failed"]) == (0, 1, 1, 0)


def test_compare__nothing_but_rejections_is_said_plainly(kvgym, tmp_path):
    rows = [{"path": [["a", 501]]}, {"path": [["b", 600]]}]
    code, out, _ = compare(kvgym, tmp_path, {"workloads": [{"use": {"source": "fixed", "rows": rows}, "name": "w"}]})
    told = (
        "random + lru: no request was answered (2 rejected because they fit no worker, 0 failed); there is nothing to"
    )
    assert code == 0 and told in out
    assert told in (tmp_path / "out" / "report.md").read_text()


def test_compare__a_folder_that_cannot_be_written(kvgym, tmp_path):
    (tmp_path / "out").write_text("a file")
    code, out, err = compare(kvgym, tmp_path)
    assert (code, out) == (2, "")
    assert err.splitlines()[-1].startswith("error: cannot write to out")
    assert (tmp_path / "out").read_text() == "a file"


@pytest.mark.parametrize("what", ["write_text", "write_table"])
def test_compare__a_full_disk(kvgym, tmp_path, monkeypatch, what):
    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    owner = Path if what == "write_text" else pyarrow.parquet
    with monkeypatch.context() as patch:
        (tmp_path / "grid.yaml").write_text(json.dumps(GRID))
        patch.setattr(owner, what, full)
        code, out, err = kvgym("compare", "grid.yaml", "--jobs", "1", "--out", "out")
    assert (code, out) == (2, "")
    assert "No space left on device" in err.splitlines()[-1]
    assert not [path for path in tmp_path.rglob("*") if path.suffix in (".parquet", ".csv", ".tmp", ".md")]
    assert compare(kvgym, tmp_path)[0] == 0, "the same command goes on when there is room"


@pytest.mark.parametrize(
    ("file", "change", "message"),
    [
        ("manifest.json", lambda text: text[:50], "manifest.json is damaged"),
        ("manifest.json", lambda text: text.replace('"identity": "', '"identity": "f'), "holds results of another run"),
        ("records/*.json", lambda text: text[:50], "is damaged"),
        ("records/*.json", lambda text: text.replace('"seed": 0', '"seed": 1'), "describes another run"),
        ("records/*.json", lambda text: text.replace('"totals"', '"tootals"'), "is damaged"),
        ("records/*.json", lambda text: text.replace('"decision_s"', '"s"'), "no decision_s in 'timing'"),
        ("records/*.parquet", lambda text: text[:50], "is not the file that"),
        ("records/*.parquet", None, "is damaged"),
    ],
)
def test_compare__damaged_or_foreign_results(kvgym, tmp_path, file, change, message):
    assert compare(kvgym, tmp_path)[0] == 0
    (path,) = (tmp_path / "out").glob(file)
    if change is None:
        path.unlink()
    else:
        path.write_bytes(change(path.read_bytes().decode("latin-1")).encode("latin-1"))
    code, out, err = compare(kvgym, tmp_path)
    assert (code, out) == (2, "")
    assert err.splitlines()[-1].startswith("error: ") and message in err.splitlines()[-1]


def test_compare__a_folder_of_something_else(kvgym, tmp_path):
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "thesis.tex").write_text("mine")
    code, _, err = compare(kvgym, tmp_path)
    assert code == 2 and "out is not empty and holds no manifest.json of kvgym" in err
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["thesis.tex"]


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("", "it is a folder"),
        ("folder", "it is a folder"),
        ("none/r.parquet", "no folder none"),
        ("n" * 300, "too long"),
    ],
)
def test_run__records_that_cannot_be_written(kvgym, tmp_path, name, message):
    (tmp_path / "folder").mkdir()
    refused(kvgym("run", "--records", name), tmp_path, ["folder"], message)


def test_run__records_never_replace_a_device(kvgym, tmp_path):
    os.mkfifo(tmp_path / "pipe")
    refused(kvgym("run", "--records", "pipe"), tmp_path, ["pipe"], "cannot write pipe: it is no plain file")


def test_run__a_trace_with_a_mark_and_crlf_and_a_name_in_unicode(kvgym, tmp_path):
    lines = b"".join(json.dumps({**ROW, "timestamp": i}).encode() + b"\r\n" for i in range(3))
    (tmp_path / "spür 轨迹.jsonl").write_bytes(b"\xef\xbb\xbf" + lines)
    text = "source: mooncake\r\npath: spür 轨迹.jsonl\r\nblock_size: 4\r\n"
    (tmp_path / "w.yaml").write_bytes(b"\xef\xbb\xbf" + text.encode())
    code, out, _ = kvgym("run", "--workload", "w.yaml", "--routing", "random", "--eviction", "lru", "--json")
    assert (code, json.loads(out)["completed"]) == (0, 3)


@pytest.mark.parametrize(
    "arguments",
    [
        {"workload": 3}, {"workload": None}, {"workload": []}, {"workload": {"source": 3}}, {"workload": "none.kvg"},
        {"cluster": []}, {"cluster": 4}, {"cluster": {"workers": "4"}}, {"cluster": {"cost": 5}},
        {"reward": 5}, {"reward": None}, {"reward": {}}, {"reward": {"latency": "1"}}, {"reward": {3: 1.0}},
        {"reward": ["latency"]}, {"reward": {"latency": float("nan")}}, {"reward": {"latency": 10**400}},
        {"backend": 1}, {"backend": None},
        {"observability": None}, {"observability": 1}, {"observability": ["router"]},
        {"eviction": 3}, {"eviction": None}, {"eviction": ["lru"]}, {"eviction": "os:path"},
    ],
    ids=str,
)  # fmt: skip
def test_make__wrong_types_are_errors_of_kvgym(arguments):
    with pytest.raises(KVGymError):
        gymnasium.make("kvgym/Routing-v0", **{"workload": "gsp_small"} | arguments)
