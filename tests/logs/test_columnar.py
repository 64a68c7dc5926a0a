from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from kvgym.errors import WorkloadError
from kvgym.logs import columnar

FACTS = {"source": "log.jsonl", "chars_per_token": 4.0}


def columns(requests):
    made = {name: np.arange(requests, dtype=np.int32) for name in columnar.SCALARS}
    made["arrival_s"] = np.linspace(0, 1, requests)
    made["think_s"] = np.where(np.arange(requests) % 2, 0.5, np.nan)
    counts = np.arange(requests) % 3
    made["node_parent"] = np.zeros(counts.sum(), np.int32)
    made["node_end"] = np.arange(1, counts.sum() + 1, dtype=np.int32)
    made["prompt_node"] = np.minimum(np.arange(requests), counts.sum()).astype(np.int32)
    made["prompt_tokens"] = made["output_node"] = made["prompt_node"]
    return made, counts


@pytest.mark.parametrize("rows", [7, 1 << 17])
def test_read__gives_back_what_was_written(tmp_path, monkeypatch, rows):
    monkeypatch.setattr(columnar, "_GROUP_ROWS", rows)
    given, counts = columns(50)
    columnar.write(tmp_path / "w.kvgw", given, counts, FACTS)
    read, facts = columnar.read(tmp_path / "w.kvgw")
    assert {name: facts[name] for name in FACTS} == FACTS
    for name, values in given.items():
        np.testing.assert_array_equal(read[name], values, err_msg=name)


def test_read__a_limit_takes_the_first_rows_and_their_nodes(tmp_path, monkeypatch):
    monkeypatch.setattr(columnar, "_GROUP_ROWS", 8)
    given, counts = columns(50)
    columnar.write(tmp_path / "w.kvgw", given, counts, FACTS)
    for limit in (1, 8, 9, 50, 51):
        read, _ = columnar.read(tmp_path / "w.kvgw", limit)
        assert len(read["session"]) == min(limit, 50)
        assert len(read["node_end"]) == counts[:limit].sum()


def test_write__texts_only_when_there_are_some(tmp_path):
    given, counts = columns(5)
    columnar.write(tmp_path / "plain.kvgw", given, counts, FACTS)
    assert set(pq.read_schema(tmp_path / "plain.kvgw").names) == {*columnar.SCALARS, *columnar.LISTS}
    texts = pa.table({"prompt": list("abcde"), "answer": ["x", None, "", "y", "z"]})
    pq.write_table(texts, tmp_path / "texts")
    columnar.write(tmp_path / "text.kvgw", given, counts, FACTS, tmp_path / "texts")
    assert pq.read_table(tmp_path / "text.kvgw").select(["prompt", "answer"]).to_pydict() == texts.to_pydict()


def test_read__no_workload_file(tmp_path):
    (tmp_path / "log.kvgw").write_text("{}")
    with pytest.raises(
        WorkloadError, match=r"log\.kvgw is no workload file or is damaged .*make it with `kvgym import`"
    ):
        columnar.read(tmp_path / "log.kvgw")
    pq.write_table(pa.table({"a": [1]}), tmp_path / "other.kvgw")
    with pytest.raises(WorkloadError, match=r"other\.kvgw: a Parquet file, but no kvgym workload of version 2"):
        columnar.read(tmp_path / "other.kvgw")


def test_read__a_damaged_file(tmp_path):
    given, counts = columns(50)
    columnar.write(tmp_path / "w.kvgw", given, counts, FACTS)
    data = (tmp_path / "w.kvgw").read_bytes()
    (tmp_path / "cut.kvgw").write_bytes(data[:-100])
    with pytest.raises(WorkloadError, match=r"cut\.kvgw is no workload file or is damaged"):
        columnar.read(tmp_path / "cut.kvgw")
    columnar.write(tmp_path / "w.kvgw", {**given, "prompt_tokens": given["prompt_tokens"] + 1}, counts, FACTS)
    with pytest.raises(WorkloadError, match=r"w\.kvgw is damaged: its nodes do not fit its prompts"):
        columnar.read(tmp_path / "w.kvgw")
