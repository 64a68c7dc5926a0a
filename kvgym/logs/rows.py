"""Trace files are looked for in a few places; their rows are checked, with file and line in the message."""

from __future__ import annotations

import contextlib
import gzip
import io
import json
import lzma
import os
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, cast

from kvgym.errors import WorkloadError
from kvgym.forest.forest import MOST_TOKENS

DATA_FOLDER = "../shared/data"
"""Where traces are looked for when the environment variable KVGYM_DATA is not set."""
BROKEN = (EOFError, gzip.BadGzipFile, zlib.error, lzma.LZMAError)
"""What a packed file raises that is cut or damaged; zstd's is an OSError that says so."""
_BUFFER_BYTES = 1 << 20
_LATEST = 1e15  # beyond, milliseconds get lost in a float


def locate(path: str | Path) -> Path:
    """Return the file: as given, else below the data folder (KVGYM_DATA), its traces/ and its calibration/.

    Raises:
        WorkloadError: there is no such file (names the places), or it is a folder.
    """
    data = Path(os.environ.get("KVGYM_DATA", DATA_FOLDER))
    given = Path(path).expanduser()
    places = [given] if given.is_absolute() else [given, *(data / sub / given for sub in ("", "traces", "calibration"))]
    try:
        for place in places:
            if place.is_file():
                return place
        folder = next((place for place in places if place.is_dir()), None)
    except (OSError, ValueError) as error:  # such as a name of a thousand letters
        raise WorkloadError(f"cannot read {str(path)[:60]!r}: {getattr(error, 'strerror', None) or error}") from error
    if folder is not None:
        raise WorkloadError(f"{folder} is a folder, expected a file; give the path of a file in it")
    raise WorkloadError(
        f"no file {str(path)!r}; looked at {', '.join(map(str, places))}. Give its path, or set KVGYM_DATA to "
        "the folder that holds it (scripts/fetch_data.py says where public traces come from)"
    )


@contextlib.contextmanager
def open_bytes(path: Path, watch: Callable[[int], None] | None = None) -> Iterator[IO[bytes]]:
    """Open a file, plain or packed by gzip, zstd or xz (by content, not by name).

    Args:
        path: the file.
        watch: called with the number of bytes (as on disk) whenever some have been read.

    Raises:
        WorkloadError: the file may not be read.
    """
    try:
        file = _Watched(path, watch)
    except OSError as error:
        raise WorkloadError(f"cannot read {path}: {error.strerror or error}") from error
    with io.BufferedReader(file, _BUFFER_BYTES) as raw:
        head = raw.peek(6)[:6]
        if head.startswith(b"\x1f\x8b"):
            with gzip.GzipFile(fileobj=raw) as packed:
                yield cast(IO[bytes], packed)
        elif head.startswith(b"\x28\xb5\x2f\xfd"):
            import pyarrow as pa

            with pa.CompressedInputStream(raw, "zstd") as stream, io.BufferedReader(_Stream(stream)) as lines:
                yield cast(IO[bytes], lines)
        elif head.startswith(b"\xfd7zXZ\x00"):
            with lzma.open(raw) as unpacked:
                yield cast(IO[bytes], unpacked)
        else:
            yield raw


@contextlib.contextmanager
def open_text(path: Path, watch: Callable[[int], None] | None = None) -> Iterator[IO[str]]:
    """Open a file as `open_bytes` does and read it as UTF-8 text; a byte order mark is skipped."""
    with open_bytes(path, watch) as data, io.TextIOWrapper(data, encoding="utf-8-sig") as text:
        yield text


class _Stream(io.RawIOBase):
    """An Arrow stream as a raw Python one, so that it can be read by lines."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        data = self._stream.read(len(buffer))
        buffer[: len(data)] = data
        return len(data)


class _Watched(io.FileIO):
    """A file that tells how much of it was read."""

    def __init__(self, path: Path, watch: Callable[[int], None] | None) -> None:
        super().__init__(path)
        self._watch = watch

    def readinto(self, buffer: Any) -> int | None:
        count = super().readinto(buffer)
        if self._watch is not None and count:
            self._watch(count)
        return count


@dataclass(frozen=True)
class Row:
    """One JSON object of a trace file (or one nested in it) that knows where it came from."""

    where: str  # "trace.jsonl, line 3" and the way to a nested object
    data: dict[str, Any]

    def error(self, field: str, expected: str) -> WorkloadError:
        """Return the exception that says what `field` should have been."""
        came = f"got {shown(self.data[field])}" if field in self.data else "the field is missing"
        return WorkloadError(f"{self.where}: {field} must be {expected}, {came}")

    def seconds(self, field: str, default: float | None = None, unit: str = "seconds") -> float:
        """Return a finite number >= 0; `default`, if given, stands for a missing field."""
        value = self.data.get(field, default)
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < _LATEST:
            raise self.error(field, f"a finite number of {unit} >= 0")
        return float(value)

    def tokens(self, field: str, least: int = 1) -> int:
        """Return a whole number of tokens >= `least`."""
        value = self.data.get(field)
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= MOST_TOKENS:
            bound = f"<= {MOST_TOKENS:,}" if isinstance(value, int) and value > MOST_TOKENS else f">= {least}"
            raise self.error(field, f"a whole number of tokens {bound}")
        return value

    def whole(self, field: str) -> int:
        """Return a whole number of 32 bits; 0 where the field is missing."""
        value = self.data.get(field, 0)
        if isinstance(value, bool) or not isinstance(value, int) or not -(2**31) <= value < 2**31:
            raise self.error(field, "a whole number of 32 bits")
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
    except BROKEN as error:
        raise WorkloadError(f"{path.name}: the packed file is cut or broken ({error}); get it again") from error
    except UnicodeDecodeError as error:
        raise WorkloadError(f"{path.name}: not UTF-8 text ({error.reason})") from error


def read_lines(path: Path, watch: Callable[[int], None] | None = None) -> Iterator[tuple[int, str]]:
    """Yield (number, text) of the lines of a UTF-8 file, plain or gzipped, that are not blank.

    CRLF ends and a byte order mark are accepted. Lines are decoded one by one: only so is the line of a bad byte known.

    Args:
        path: the file.
        watch: called with the number of bytes (as on disk) whenever some have been read.

    Raises:
        WorkloadError: the file is empty, cut or not UTF-8; with file and line.
    """
    line, empty = 0, True
    try:
        with open_bytes(path, watch) as lines:
            for line, data in enumerate(lines, 1):
                text = data.decode("utf-8-sig" if line == 1 else "utf-8")
                if text.strip():
                    empty = False
                    yield line, text
    except BROKEN as error:
        raise WorkloadError(
            f"{path.name}, after line {line}: the packed file is cut or broken ({error}); get it again"
        ) from error
    except UnicodeDecodeError as error:
        raise WorkloadError(
            f"{path.name}, line {line}: not UTF-8 text ({error.reason} at byte {error.start}); convert it"
        ) from error
    if empty:
        raise WorkloadError(f"{path.name}: the file is empty, expected one JSON object per line")


def read_rows(path: Path, watch: Callable[[int], None] | None = None) -> Iterator[Row]:
    """Yield the rows of a JSONL file; what `read_lines` accepts is accepted.

    Raises:
        WorkloadError: as `read_lines`, or a line is no JSON object; with file and line.
    """
    for line, text in read_lines(path, watch):
        yield Row(f"{path.name}, line {line}", parse_object(text, path, line))


def parse_object(text: str, path: Path, line: int) -> dict[str, Any]:
    """Return the JSON object in one line of a file.

    Raises:
        WorkloadError: it is something else; with file, line and column.
    """
    try:
        data = json.loads(text)
    except json.JSONDecodeError as error:
        raise WorkloadError(
            f"{path.name}, line {line}: expected one JSON object per line, {error.msg} at column {error.colno}"
        ) from error
    except (ValueError, RecursionError) as error:  # a number of 5,000 digits, brackets in brackets in ...
        raise WorkloadError(f"{path.name}, line {line}: cannot read this JSON object: {error}") from error
    if not isinstance(data, dict):
        raise WorkloadError(f"{path.name}, line {line}: expected one JSON object per line, got {shown(data)}")
    return data


def shown(value: Any) -> str:
    """Return `value` for a message, cut to 60 characters."""
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
