"""Trace files: where they are looked for, and rows whose fields are checked with file and line in the message."""

from __future__ import annotations

import contextlib
import gzip
import json
import math
import os
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from kvgym.errors import WorkloadError

DATA_FOLDER = "../shared/data"
"""Where traces are looked for when the environment variable KVGYM_DATA is not set."""
_MOST_TOKENS = 2**31 - 1


def locate(path: str | Path) -> Path:
    """Return the file: as given, else below the data folder (KVGYM_DATA), its traces/ and its calibration/.

    Raises:
        WorkloadError: there is no such file; names the places.
    """
    data = Path(os.environ.get("KVGYM_DATA", DATA_FOLDER))
    given = Path(path).expanduser()
    places = [given] if given.is_absolute() else [given, *(data / sub / given for sub in ("", "traces", "calibration"))]
    for place in places:
        if place.is_file():
            return place
    raise WorkloadError(
        f"no trace file {str(path)!r}; looked at {', '.join(map(str, places))}. Give its path, or set KVGYM_DATA to "
        "the folder that holds it (scripts/fetch_data.py says where public traces come from)"
    )


def open_text(path: Path) -> IO[str]:
    """Open a plain or gzipped (by content, not by name) UTF-8 text file; a byte order mark is skipped."""
    with path.open("rb") as raw:
        packed = raw.read(2) == b"\x1f\x8b"
    return gzip.open(path, "rt", encoding="utf-8-sig") if packed else path.open(encoding="utf-8-sig")


@dataclass(frozen=True)
class Row:
    """One JSON object of a trace file (or one nested in it) that knows where it came from."""

    where: str  # "trace.jsonl, line 3" and the way to a nested object
    data: dict[str, Any]

    def error(self, field: str, expected: str) -> WorkloadError:
        """Return the exception that says what `field` should have been."""
        came = f"got {_shown(self.data[field])}" if field in self.data else "the field is missing"
        return WorkloadError(f"{self.where}: {field} must be {expected}, {came}")

    def seconds(self, field: str, default: float | None = None, unit: str = "seconds") -> float:
        """Return a finite number >= 0; `default`, if given, stands for a missing field."""
        value = self.data.get(field, default)
        if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value) or value < 0:
            raise self.error(field, f"a finite number of {unit} >= 0")
        return float(value)

    def tokens(self, field: str, least: int = 1) -> int:
        """Return a whole number of tokens >= `least`."""
        value = self.data.get(field)
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= _MOST_TOKENS:
            raise self.error(field, f"a whole number of tokens >= {least}")
        return value

    def items(self, field: str) -> list[Any]:
        """Return a list (it may be empty)."""
        value = self.data.get(field)
        if not isinstance(value, list):
            raise self.error(field, "a list")
        return value

    def nested(self, field: str) -> Iterator[Row]:
        """Yield the objects of a list of objects."""
        for i, item in enumerate(self.items(field)):
            if not isinstance(item, dict):
                raise self.error(field, f"a list of objects (entry {i} is none)")
            yield Row(f"{self.where}, {field}[{i}]", item)


@contextlib.contextmanager
def readable(path: Path) -> Iterator[None]:
    """Turn what a cut, broken or non-text file raises while it is read into a WorkloadError that names the file."""
    try:
        yield
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise WorkloadError(f"{path.name}: the gzip file is cut or broken ({error}); get it again") from error
    except UnicodeDecodeError as error:
        raise WorkloadError(f"{path.name}: not UTF-8 text ({error.reason} at byte {error.start})") from error


def read_rows(path: Path) -> Iterator[Row]:
    """Yield the rows of a JSONL file, plain or gzipped; blank lines, CRLF ends and a byte order mark are accepted.

    Raises:
        WorkloadError: a line is no JSON object, or the file is cut or not UTF-8; with file and line.
    """
    with readable(path), open_text(path) as lines:
        for line, text in enumerate(lines, 1):
            if text.strip():
                yield Row(f"{path.name}, line {line}", _parse(text, path, line))


def _parse(text: str, path: Path, line: int) -> dict[str, Any]:
    try:
        data = json.loads(text)
    except json.JSONDecodeError as error:
        raise WorkloadError(
            f"{path.name}, line {line}: expected one JSON object per line, {error.msg} at column {error.colno}"
        ) from error
    if not isinstance(data, dict):
        raise WorkloadError(f"{path.name}, line {line}: expected one JSON object per line, got {_shown(data)}")
    return data


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
