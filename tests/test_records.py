from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from kvgym.errors import ResultsError
from kvgym.records import SCHEMA, read_records, to_table, write_records
from kvgym.types import RECORD


def some_records(count: int) -> np.ndarray:
    rng = np.random.default_rng(0)
    records = np.zeros(count, RECORD)
    for name in SCHEMA.names:
        records[name] = rng.random(count) if RECORD[name].kind == "f" else rng.integers(-5, 1000, count)
    return records


@pytest.mark.parametrize("count", [0, 1, 1000])
def test_records__round_trip_is_exact(tmp_path, count):
    records = some_records(count)
    write_records(tmp_path / "r.parquet", records)
    assert read_records(tmp_path / "r.parquet").tobytes() == records.tobytes()
    assert [path.name for path in tmp_path.iterdir()] == ["r.parquet"]


def test_read_records__damaged_file(tmp_path):
    path = tmp_path / "r.parquet"
    write_records(path, some_records(100))
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(ResultsError, match=r"r\.parquet.*delete it"):
        read_records(path)


def test_read_records__another_table(tmp_path):
    pq.write_table(to_table(some_records(3)).drop_columns(["turn"]), tmp_path / "r.parquet")
    with pytest.raises(ResultsError, match="columns are not those of request records"):
        read_records(tmp_path / "r.parquet")
    pq.write_table(pa.table({"x": [1]}), tmp_path / "r.parquet")
    with pytest.raises(ResultsError, match="columns are not those of request records: x"):
        read_records(tmp_path / "r.parquet")


def test_write_records__a_place_that_cannot_be_written(tmp_path):
    (tmp_path / "folder.parquet").mkdir()
    with pytest.raises(ResultsError, match=r"cannot write .*folder\.parquet"):
        write_records(tmp_path / "folder.parquet", some_records(1))
    assert [path.name for path in tmp_path.iterdir()] == ["folder.parquet"]
