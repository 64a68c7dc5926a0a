"""Observations of step times: read from step tables, request records, benchmark output, or a profile's own file."""

from __future__ import annotations

import csv
import gzip
import io
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from kvgym.errors import ConfigError
from kvgym.records import read_records
from kvgym.types import DONE

PREFILL, DECODE, FIRST_TOKEN = 0, 1, 2
"""Phases: a prefill step, a decode step, and a lone request's time to first token as its client saw it."""
NAMES = ("prefill", "decode", "first_token")
OBSERVATION = np.dtype(
    [
        ("phase", np.int8),
        ("batch", np.int32),  # sequences of the step
        ("new", np.float64),  # computed tokens of each, 1 in a decode step
        ("context", np.float64),  # tokens of each that were there already
        ("ms", np.float64),
    ]
)
"""One observed step, or one lone request."""

_TABLE = {"phase": "phase", "batch": "batch", "new_tokens_per_seq": "new", "cached_or_context_tokens": "context",
          "latency_ms": "ms"}  # fmt: skip
_SIZES = ("batch", "new", "context", "ms")
_LEAST = 8
"""Fewer observations than this give no fit worth the name."""


def read_observations(path: Path, where: Mapping[str, str] | None = None) -> tuple[np.ndarray, list[str]]:
    """Return the OBSERVATION rows of a file, and sentences on what was read and what was left out.

    Args:
        path: a step table (.csv, .csv.gz) with the columns phase, batch, new_tokens_per_seq, cached_or_context_tokens
            and latency_ms; a run's records (.parquet); bench_serving's output or `kvgym profile`'s (.jsonl).
        where: column -> value, for tables of several models or machines.

    Raises:
        ConfigError: the file can't be read, or has too few usable rows.
    """
    try:
        if path.name.endswith((".csv", ".csv.gz")):
            rows, notes = _step_table(path, where or {})
        elif path.suffix == ".parquet":
            rows, notes = lone_requests(read_records(path))
        elif path.name.endswith((".jsonl", ".jsonl.gz")):
            rows, notes = _json_lines(path)
        else:
            raise ConfigError(f"{path}: give a step table (.csv), records (.parquet) or benchmark output (.jsonl)")
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise ConfigError(f"cannot read {path}: {error}") from error
    rows = rows[np.isfinite(rows["ms"]) & (rows["ms"] > 0)]
    if len(rows) < _LEAST:
        raise ConfigError(f"{path}: {len(rows)} usable observations, at least {_LEAST} are needed. {' '.join(notes)}")
    return rows, notes


def observation(phase: int, batch: int, new: float, context: float, ms: float) -> np.ndarray:
    """Return one OBSERVATION row."""
    return np.array([(phase, batch, new, context, ms)], OBSERVATION)


def write_observations(path: Path, rows: np.ndarray) -> None:
    """Write OBSERVATION rows as JSON lines."""
    lines = [json.dumps({"phase": NAMES[row["phase"]], **{n: float(row[n]) for n in _SIZES}})
             for row in rows]  # fmt: skip
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")


def lone_requests(records: np.ndarray) -> tuple[np.ndarray, list[str]]:
    """Return what RECORD rows of requests that were alone on their worker say: time to first token, time per token.

    Requests that shared a worker with another one are left out: which of them a step served is not in the records.
    """
    rows: list[np.ndarray] = []
    done = records[records["status"] == DONE]
    for worker in np.unique(done["worker"]):
        own = np.sort(done[done["worker"] == worker], order="arrival_s")
        before = np.maximum.accumulate(np.concatenate(([-np.inf], own["finish_s"][:-1])))
        after = np.concatenate((own["arrival_s"][1:], [np.inf]))
        for row in own[(own["arrival_s"] >= before) & (own["finish_s"] <= after)]:
            new, hit, out = (float(row[name]) for name in ("prompt_tokens", "hit_tokens", "output_tokens"))
            first_ms = 1000.0 * (row["first_token_s"] - row["arrival_s"])
            rows.append(observation(FIRST_TOKEN, 1, new - hit, hit, first_ms))
            if out > 1:
                token_ms = 1000.0 * (row["finish_s"] - row["first_token_s"]) / (out - 1)
                rows.append(observation(DECODE, 1, 1, new + out / 2, token_ms))
    found = np.concatenate(rows) if rows else np.zeros(0, OBSERVATION)
    alone = int((found["phase"] == FIRST_TOKEN).sum())
    return found, [f"{alone} of {len(records)} requests were alone on their worker; only these tell of single steps."]


def _step_table(path: Path, where: Mapping[str, str]) -> tuple[np.ndarray, list[str]]:
    data = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    reader = csv.DictReader(io.StringIO(data.decode("utf-8")))
    columns = reader.fieldnames or []
    if missing := [name for name in (*_TABLE, *where) if name not in columns]:
        raise ConfigError(f"{path}: no column {missing[0]!r}; a step table has {', '.join(_TABLE)}, this has {columns}")
    rows = [row for row in reader if all(row[name] == value for name, value in where.items())]
    if not rows:
        raise ConfigError(f"{path}: no row with {dict(where)}")
    for name in columns:
        if name not in _TABLE and len(values := {row[name] for row in rows}) > 1:
            raise ConfigError(f"{path} is about several: {name} is {_some(values)}; choose with --where {name}=VALUE")
    result = np.zeros(len(rows), OBSERVATION)
    for column, name in _TABLE.items():
        for at, row in enumerate(rows):
            result[name][at] = _phase(row[column], path) if column == "phase" else _number(row[column], column, path)
    return result, [f"{len(rows)} steps."]


def _json_lines(path: Path) -> tuple[np.ndarray, list[str]]:
    text = (gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()).decode("utf-8")
    rows: list[np.ndarray] = []
    notes: list[str] = []
    for number, line in enumerate(filter(str.strip, text.splitlines()), start=1):
        try:
            row = json.loads(line)
        except ValueError as error:
            raise ConfigError(f"{path}, line {number}: no JSON ({error})") from error
        if isinstance(row, dict) and "phase" in row:
            fields = [_number(row.get(name), name, path) for name in _SIZES]
            rows.append(observation(_phase(row["phase"], path), int(fields[0]), *fields[1:]))
        elif isinstance(row, dict) and "ttfts" in row:
            rows.append(_benchmark(row, path, notes))
        else:
            raise ConfigError(f"{path}, line {number}: neither a profile's observation nor bench_serving's output")
    return np.concatenate(rows) if rows else np.zeros(0, OBSERVATION), notes


def _benchmark(row: Mapping[str, Any], path: Path, notes: list[str]) -> np.ndarray:
    """Return what one output line of SGLang's bench_serving says (--output-details, --max-concurrency 1)."""
    if row.get("max_concurrency") != 1:
        raise ConfigError(
            f"{path}: max_concurrency is {row.get('max_concurrency')}; which requests shared a step is not in the "
            "file. Run bench_serving with --max-concurrency 1 --output-details"
        )
    lists = [row.get(name) for name in ("input_lens", "output_lens", "ttfts", "itls")]
    if not all(isinstance(values, list) and len(values) == len(lists[0] or []) for values in lists):
        raise ConfigError(f"{path}: input_lens, output_lens, ttfts and itls must be lists of one length")
    notes.append("bench_serving does not say what was cached: its prompts are taken as new, so let them share nothing.")
    rows = []
    for prompt, output, first_s, gaps_s in zip(*lists, strict=True):
        rows.append(observation(FIRST_TOKEN, 1, prompt, 0, 1000.0 * first_s))
        if output > 1 and gaps_s:
            rows.append(observation(DECODE, 1, 1, prompt + output / 2, 1000.0 * sum(gaps_s) / (output - 1)))
    return np.concatenate(rows) if rows else np.zeros(0, OBSERVATION)


def _phase(name: Any, path: Path) -> int:
    if name not in NAMES:
        raise ConfigError(f"{path}: phase must be one of {', '.join(NAMES)}, got {name!r}")
    return NAMES.index(name)


def _number(value: Any, column: str, path: Path) -> float:
    try:
        number = float(value)
    except (TypeError, ValueError):
        raise ConfigError(f"{path}: {column} must be a number, got {value!r}") from None
    if not 0 <= number < np.inf:
        raise ConfigError(f"{path}: {column} must be a number >= 0, got {value!r}")
    return number


def _some(values: Iterable[str]) -> str:
    shown = sorted(values)
    return ", ".join(shown[:6]) + (" ..." if len(shown) > 6 else "")
