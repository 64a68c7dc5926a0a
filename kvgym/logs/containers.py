"""Reads the rows of a log, however they are kept: JSON lines, one JSON array, Parquet or CSV, packed or not."""

from __future__ import annotations

import csv
import functools
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from kvgym.errors import WorkloadError
from kvgym.logs.forms.conversations import read_array
from kvgym.logs.rows import open_bytes, open_text, parse_object, read_lines, readable, shown

Read = Callable[[], dict[str, Any]]
"""Returns the object of one row, or raises a WorkloadError that says where and what is wrong."""
_BATCH = 1024
_MOST_FIELD = 1 << 27  # characters of a CSV field; prompts are long


def kind_of(path: Path) -> str:
    """Return json (an array), parquet, csv or lines, by the beginning of the file."""
    with readable(path), open_bytes(path) as stream:
        head = stream.read(4096)
    if head.startswith(b"PAR1"):
        return "parquet"
    text = head.decode("utf-8-sig", "replace").lstrip()
    if text.startswith("["):
        return "json"
    first = text.split("\n", 1)[0]
    return "csv" if not text.startswith("{") and first.count(",") and "{" not in first else "lines"


def read_objects(path: Path, watch: Callable[[int], None] | None = None) -> Iterator[tuple[str, Read]]:
    """Yield (where, a function that returns the row's object) for each row of a log.

    Raises:
        WorkloadError: the file as a whole can't be read.
    """
    kind = kind_of(path)
    if kind == "parquet":
        yield from _parquet(path)
    elif kind == "csv":
        yield from _csv(path, watch)
    elif kind == "json":
        yield from _array(path, watch)
    else:
        for line, text in read_lines(path, watch):
            yield f"{path.name}, line {line}", functools.partial(parse_object, text, path, line)


def _parquet(path: Path) -> Iterator[tuple[str, Read]]:
    try:
        file, number = pq.ParquetFile(path), 0
        for batch in file.iter_batches(_BATCH):
            for data in batch.to_pylist():
                number += 1
                yield f"{path.name}, row {number}", functools.partial(_columns, data)
    except (pa.ArrowException, OSError) as error:
        raise WorkloadError(f"{path.name}: no readable Parquet file: {error}") from error


def _columns(data: dict[str, Any]) -> dict[str, Any]:
    return {name: _parsed(value) for name, value in data.items() if value is not None}


def _csv(path: Path, watch: Callable[[int], None] | None) -> Iterator[tuple[str, Read]]:
    csv.field_size_limit(_MOST_FIELD)
    with readable(path), open_text(path, watch) as stream:
        try:
            reader = csv.DictReader(stream)
            for data in reader:
                where = f"{path.name}, line {reader.line_num}"
                yield where, functools.partial(_record, data, where)
        except csv.Error as error:
            raise WorkloadError(f"{path.name}: no readable CSV file: {error}") from error


def _record(data: dict[str | None, Any], where: str) -> dict[str, Any]:
    if None in data or None in data.values():
        raise WorkloadError(f"{where}: another number of fields than the first line has")
    return {str(name).strip(): _number(_parsed(value)) for name, value in data.items() if value != ""}


def _array(path: Path, watch: Callable[[int], None] | None) -> Iterator[tuple[str, Read]]:
    for number, record in enumerate(read_array(path, watch), start=1):
        where = f"{path.name}, entry {number}"
        yield where, functools.partial(_object, record, where)


def _object(record: Any, where: str) -> dict[str, Any]:
    if not isinstance(record, dict):
        raise WorkloadError(f"{where}: expected a JSON object, got {shown(record)}")
    return record


def _parsed(value: Any) -> Any:
    """Return what a text in a column holds where that is JSON: request bodies are kept so in tables."""
    if isinstance(value, str) and value[:1] in ("{", "["):
        try:
            return json.loads(value)
        except (ValueError, RecursionError):
            return value
    return value


def _number(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    for kind in (int, float):
        try:
            return kind(value)
        except ValueError:
            continue
    return value
