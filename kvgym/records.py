"""Request records become Arrow tables and Parquet files, and come back, bit for bit."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from kvgym.errors import ResultsError
from kvgym.types import RECORD

SCHEMA = pa.schema([pa.field(name, pa.from_numpy_dtype(RECORD[name]), nullable=False) for name in RECORD.names or ()])
"""Arrow schema of a record table: RECORD's fields in its order."""


def to_table(records: np.ndarray) -> pa.Table:
    """Return an Arrow table with RECORD's columns; `records` has dtype RECORD, shape (requests,)."""
    return pa.table({name: np.ascontiguousarray(records[name]) for name in SCHEMA.names}, schema=SCHEMA)


def from_table(table: pa.Table) -> np.ndarray:
    """Return records of dtype RECORD, shape (rows,).

    Raises:
        ResultsError: the columns are not those of RECORD.
    """
    if table.schema.names != SCHEMA.names or table.schema.types != SCHEMA.types:
        raise ResultsError(f"columns are not those of request records: {', '.join(table.schema.names)}")
    records = np.zeros(table.num_rows, RECORD)
    for name in SCHEMA.names:
        records[name] = table.column(name).to_numpy()
    return records


def write_records(path: Path, records: np.ndarray) -> None:
    """Write `records` to a Parquet file that appears whole or not at all.

    Raises:
        ResultsError: the file cannot be written.
    """
    write_parquet(path, to_table(records))


def check_ending(path: Path, ending: str) -> None:
    """Check that a file's name ends as its kind does: another one may be somebody's input.

    Raises:
        ResultsError: it does not.
    """
    if path.suffix != ending:
        raise ResultsError(f"cannot write {str(path)[:200]}: its name must end in {ending}")


def check_target(path: Path) -> None:
    """Check that a file can be made at `path`, or a plain one replaced there.

    Raises:
        ResultsError: it has no name, its folder is absent, or something else is there (a folder, a device).
    """
    try:
        if not path.name or path.is_dir():
            what = "it is a folder"
        elif not path.parent.is_dir():
            what = f"no folder {path.parent}"
        else:
            what = "" if path.is_file() or not path.exists() else "it is no plain file"
    except (OSError, ValueError) as error:  # a name of a thousand letters, or with a zero in it
        what = getattr(error, "strerror", None) or str(error)
    if what:
        raise ResultsError(f"cannot write {str(path)[:200]}: {what}")


def read_records(path: Path) -> np.ndarray:
    """Return the records of a Parquet file.

    Raises:
        ResultsError: the file is no Parquet file or holds something else.
    """
    try:
        return from_table(pq.read_table(path))
    except (pa.ArrowException, OSError, ResultsError) as error:
        raise ResultsError(f"cannot read request records from {path}: {error}; delete it to run it again") from error


def write_parquet(path: Path, table: pa.Table) -> None:
    """Write any table to a Parquet file that appears whole or not at all.

    Raises:
        ResultsError: the file cannot be written.
    """
    with replacing(path) as temporary:
        pq.write_table(table, temporary)


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yield a file to write that takes the place of `path` at the end, or none if something goes wrong.

    Raises:
        ResultsError: the file cannot be written.
    """
    check_target(path)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        yield temporary
        temporary.replace(path)
    except OSError as error:
        raise ResultsError(f"cannot write {path}: {error.strerror or error}") from error
    finally:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)
