"""The workload file has one Parquet row per logged request, with the forest nodes that it is the first to use.

Columns: ``arrival_s`` (since the first request) and ``think_s`` (since the answer before), both null where the log does
not tell; ``prompt_tokens``, ``output_tokens`` (0: not known), ``max_new_tokens`` (0: not given), ``session``,
``priority``, ``tenant`` (0 has the most requests); ``prompt_node`` and ``output_node`` (-1: not known);
``node_parent`` and ``node_end``, lists. Node ids count these lists' entries from 1 on; 0 is the root. Lengths and ends
(depths) are tokens at page size 1. There are no token ids or names, and no text unless the import was told to keep it
(``prompt``, ``answer``). The schema's metadata holds a JSON object under ``kvgym``.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from kvgym.errors import WorkloadError

VERSION = 2
_GROUP_ROWS, _TEXT_ROWS = 1 << 17, 1 << 12
SCALARS = {
    **dict.fromkeys(("arrival_s", "think_s"), pa.float64()),
    **dict.fromkeys(("prompt_tokens", "output_tokens", "max_new_tokens"), pa.int32()),
    **dict.fromkeys(("session", "priority", "tenant"), pa.int32()),
    **dict.fromkeys(("prompt_node", "output_node"), pa.int32()),
}
"""Columns with one number per request, and their types."""
LISTS = ("node_parent", "node_end")
"""Columns with one list of whole numbers per request."""
TEXTS = ("prompt", "answer")


def schema(facts: dict[str, Any], texts: bool) -> pa.Schema:
    """Return the file's schema; `facts` is kept in it."""
    fields = [pa.field(name, kind) for name, kind in SCALARS.items()]
    fields += [pa.field(name, pa.list_(pa.int32())) for name in LISTS]
    fields += [pa.field(name, pa.string()) for name in TEXTS if texts]
    return pa.schema(fields, metadata={"kvgym": json.dumps({"version": VERSION, **facts})})


def write(
    file: Path, columns: dict[str, np.ndarray], counts: np.ndarray, facts: dict[str, Any], texts: Path | None = None
) -> None:
    """Write a workload file, one row group at a time.

    Args:
        file: where to; the caller moves it to its place when it is whole.
        columns: SCALARS (NaN in the floats: null) of shape (requests,) and LISTS of shape (nodes,).
        counts: number of list entries of each request, (requests,).
        facts: what reports should know, ready for JSON.
        texts: a Parquet file with the columns TEXTS, one row per request.
    """
    offsets = np.concatenate(([0], np.cumsum(counts)))
    form = schema(facts, texts is not None)
    with pq.ParquetWriter(file, form, compression="zstd") as writer:
        begin = 0
        for text in _groups(len(counts), texts):
            end = begin + text.num_rows
            part = {name: pa.array(columns[name][begin:end], kind, from_pandas=True) for name, kind in SCALARS.items()}
            starts = pa.array((offsets[begin : end + 1] - offsets[begin]).astype(np.int32))
            for name in LISTS:
                values = pa.array(columns[name][offsets[begin] : offsets[end]], pa.int32())
                part[name] = pa.ListArray.from_arrays(starts, values)
            part |= {name: text.column(name) for name in TEXTS if texts is not None}
            writer.write_batch(pa.record_batch(part, schema=form))
            begin = end


def is_workload(file: Path) -> bool:
    """Say whether a file has been made by `kvgym import`, whatever its version."""
    try:
        with pq.ParquetFile(file) as parquet:
            return b"kvgym" in (parquet.schema_arrow.metadata or {})
    except (pa.ArrowException, OSError):
        return False


def read(file: Path, limit: int | None = None) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """Return the columns (as `write` takes them) of the first `limit` requests, and the facts.

    Raises:
        WorkloadError: the file is no workload file, damaged, or of another version; says how to make one.
    """
    try:
        with pq.ParquetFile(file) as parquet:
            facts = json.loads((parquet.schema_arrow.metadata or {}).get(b"kvgym", b"{}"))
            if facts.get("version") != VERSION:
                raise WorkloadError(
                    f"{file.name}: a Parquet file, but no kvgym workload of version {VERSION} "
                    f"(version {facts.get('version')}); make it with `kvgym import`"
                )
            groups = _enough_groups(parquet, limit)
            table = parquet.read_row_groups(groups, [*SCALARS, *LISTS]).slice(0, limit)
    except (pa.ArrowException, OSError, ValueError) as error:
        if isinstance(error, WorkloadError):
            raise
        raise WorkloadError(
            f"{file.name} is no workload file or is damaged ({error}); make it with `kvgym import`"
        ) from error
    columns = {name: table.column(name).to_numpy() for name in SCALARS}
    for name in LISTS:
        columns[name] = pa.chunked_array(
            [chunk.flatten() for chunk in table.column(name).chunks], pa.int32()
        ).to_numpy()
    ends = np.concatenate(([0], columns["node_end"]))
    last = max(columns["prompt_node"].max(initial=0), columns["output_node"].max(initial=0))
    if last >= len(ends) or not np.array_equal(ends[columns["prompt_node"]], columns["prompt_tokens"]):
        raise WorkloadError(f"{file.name} is damaged: its nodes do not fit its prompts; make it with `kvgym import`")
    return columns, facts


def _enough_groups(parquet: pq.ParquetFile, limit: int | None) -> list[int]:
    """Return the row groups that hold the first `limit` rows."""
    rows = np.cumsum([parquet.metadata.row_group(i).num_rows for i in range(parquet.num_row_groups)])
    count = len(rows) if limit is None else int(np.searchsorted(rows, limit)) + 1
    return list(range(min(count, len(rows))))


def _groups(requests: int, texts: Path | None) -> Iterator[Any]:
    """Yield one batch of texts per row group; batches without columns where no text is kept."""
    if texts is not None:
        with pq.ParquetFile(texts) as parquet:
            yield from parquet.iter_batches(_TEXT_ROWS)
        return
    for begin in range(0, requests, _GROUP_ROWS):
        yield pa.record_batch({"": pa.nulls(min(_GROUP_ROWS, requests - begin))})
