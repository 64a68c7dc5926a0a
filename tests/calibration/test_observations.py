import gzip
import json

import numpy as np
import pytest

from kvgym.calibration.observations import DECODE, FIRST_TOKEN, PREFILL, lone_requests, read_observations
from kvgym.errors import ConfigError, ResultsError
from kvgym.types import DONE, FAILED, RECORD

HEAD = "system,phase,batch,new_tokens_per_seq,cached_or_context_tokens,latency_ms\n"
ROWS = "".join(f"a,prefill,1,{n},0,{5 + n / 10}\na,decode,4,1,{n},3.5\n" for n in (1, 2, 3, 4))


def test_step_table__plain_or_packed(tmp_path):
    plain, packed = tmp_path / "t.csv", tmp_path / "t.csv.gz"
    plain.write_text(HEAD + ROWS)
    packed.write_bytes(gzip.compress((HEAD + ROWS).encode()))
    rows, notes = read_observations(plain)
    assert np.array_equal(rows, read_observations(packed)[0])
    assert rows[0].tolist() == (PREFILL, 1, 1.0, 0.0, 5.1)
    assert rows[1].tolist() == (DECODE, 4, 1.0, 1.0, 3.5)
    assert notes == ["8 steps."]


def test_step_table__of_several_machines_needs_a_choice(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text(HEAD + ROWS + ROWS.replace("a,", "b,"))
    with pytest.raises(ConfigError, match="is about several: system is a, b; choose with --where system=VALUE"):
        read_observations(path)
    assert len(read_observations(path, {"system": "b"})[0]) == 8
    with pytest.raises(ConfigError, match=r"no row with \{'system': 'c'\}"):
        read_observations(path, {"system": "c"})


def records(*rows):
    """RECORD rows of (worker, arrival, first token, finish), 100 tokens prompt, 30 hit, 11 out."""
    found = np.zeros(len(rows), RECORD)
    found["status"], found["prompt_tokens"], found["hit_tokens"], found["output_tokens"] = DONE, 100, 30, 11
    for at, (worker, *times) in enumerate(rows):
        found["worker"][at] = worker
        found["arrival_s"][at], found["first_token_s"][at], found["finish_s"][at] = times
    return found


def test_records__only_requests_that_were_alone_count():
    rows, notes = lone_requests(
        records((0, 0.0, 1.0, 2.0), (0, 5.0, 6.0, 9.0), (0, 8.0, 9.5, 10.0), (1, 5.5, 6.0, 8.0))
    )
    assert rows["phase"].tolist() == [FIRST_TOKEN, DECODE] * 2
    assert rows["ms"].tolist() == pytest.approx([1000.0, 100.0, 500.0, 200.0])
    assert rows["new"].tolist() == [70.0, 1.0, 70.0, 1.0]
    assert rows["context"].tolist() == [30.0, 105.5, 30.0, 105.5]
    assert notes[0].startswith("2 of 4 requests were alone")


def test_records__failed_ones_say_nothing():
    found = records((0, 0.0, 1.0, 2.0), (0, 5.0, 6.0, 9.0))
    found["status"][1] = FAILED
    assert len(lone_requests(found)[0]) == 2


def benchmark(**change):
    lines = {"max_concurrency": 1, "input_lens": [10, 20, 30, 40], "output_lens": [3, 3, 3, 1],
             "ttfts": [0.1, 0.2, 0.3, 0.4], "itls": [[0.01, 0.03]] * 3 + [[]], **change}  # fmt: skip
    return json.dumps(lines) + "\n"


def test_bench_serving__one_at_a_time(tmp_path):
    path = tmp_path / "b.jsonl"
    path.write_text(benchmark() * 2)
    rows, notes = read_observations(path)
    assert rows["phase"].tolist() == [FIRST_TOKEN, DECODE, FIRST_TOKEN, DECODE, FIRST_TOKEN, DECODE, FIRST_TOKEN] * 2
    assert rows["ms"][:3].tolist() == pytest.approx([100.0, 20.0, 200.0])
    assert "does not say what was cached" in notes[0]


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("b.jsonl", benchmark(max_concurrency=None), "max_concurrency is None; .*--max-concurrency 1"),
        ("b.jsonl", benchmark(itls=[]), "must be lists of one length"),
        ("b.jsonl", '{"a": 1}', "line 1: neither a profile's observation nor bench_serving's"),
        ("b.jsonl", "nonsense", "line 1: no JSON"),
        ("b.jsonl", '{"phase": "decode", "batch": 1, "new": 1, "context": "x", "ms": 1}', "context must be a number"),
        ("b.jsonl", '{"phase": "warm", "batch": 1, "new": 1, "context": 1, "ms": 1}', "phase must be one of"),
        ("t.csv", HEAD + "a,prefill,1,1,0,5\n", "1 usable observations, at least 8"),
        ("t.csv", HEAD + "a,prefill,1,-1,0,5\n", "new_tokens_per_seq must be a number >= 0, got '-1'"),
        ("t.csv", "x,y\n1,2\n", "no column 'phase'"),
        ("t.txt", "", "give a step table"),
    ],
)
def test_mistakes__are_named(tmp_path, name, text, message):
    path = tmp_path / name
    path.write_text(text)
    with pytest.raises(ConfigError, match=message):
        read_observations(path)


def test_no_file__is_named(tmp_path):
    with pytest.raises(ConfigError, match="cannot read"):
        read_observations(tmp_path / "none.csv")
    with pytest.raises(ResultsError, match="cannot read request records"):
        read_observations(tmp_path / "none.parquet")
