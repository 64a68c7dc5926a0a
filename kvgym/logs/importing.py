"""Imports one's own traffic: a request log becomes a workload file, read as a stream, without the texts."""

from __future__ import annotations

import contextlib
import functools
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TaskProgressColumn, TimeRemainingColumn

from kvgym.config.loader import WORKLOAD_FILES
from kvgym.errors import ResultsError, WorkloadError
from kvgym.logs import columnar
from kvgym.logs.digest import Digest
from kvgym.logs.entries import Entry
from kvgym.logs.formats import LogReader
from kvgym.logs.rows import locate
from kvgym.logs.tokens import load_tokeniser
from kvgym.records import check_target

_LINE_S = 10.0
_BATCH_ROWS, _BATCH_CHARS = 1024, 1 << 21
_REPAIRS = {
    "late_rows": "earlier than the row before",
    "empty_answers": "with an answer of 0 tokens",
    "id_counts": "with a wrong id count",
}


def import_log(
    path: str | Path,
    out: Path | None = None,
    form: str = "auto",
    tokenizer: str | None = None,
    *,
    keep_text: bool = False,
    repair: bool = False,
    console: Console | None = None,
) -> tuple[Path, dict[str, Any]]:
    """Turn a request log into a workload file that the source `imported` reads; return its path and what it holds.

    Args:
        path: the log (`logs` says what is read), plain or gzip.
        out: where to, ending in one of WORKLOAD_FILES; none: the log's name in the current folder.
        form: format of the log, or "auto".
        tokenizer: Hugging Face tokenizer.json; none: the built-in token counter.
        keep_text: put prompts and answers as text into the file.
        repair: accept rows out of order, wrong id counts (the ids count) and empty answers (1 token).
        console: where progress is shown; none: nowhere.

    Raises:
        WorkloadError: the log is malformed; with file, line and field.
        ResultsError: the file cannot be written. Nothing is left of it then.
    """
    file = locate(path)
    out = _checked(_default_name(file) if out is None else out, file)
    tokenise = load_tokeniser(tokenizer)
    try:
        with (
            _watch(console or Console(quiet=True), file) as watch,
            tempfile.TemporaryDirectory(prefix=f".{out.name}.", dir=out.parent) as name,
        ):
            folder, misfits = Path(name), Counter[str]()
            reader = LogReader(file, form, watch)
            with Digest(tokenise, folder, exact=tokenizer is not None, keep_text=keep_text) as digest:
                for batch in _batches(_accepted(reader, misfits, repair)):
                    digest.add(batch)
            if not digest.count:
                raise WorkloadError(f"{file.name}: no request in it ({reader.skipped} rows are none)")
            columns, counts, found = digest.finish()
            facts = {
                "source": file.name,
                "format": reader.form,
                "tokens": Path(tokenizer).name if tokenizer else "built-in counter",
                "rows_skipped": reader.skipped,
                **{f"repaired_{kind}": misfits[kind] for kind in _REPAIRS},
                **found,
            }
            columnar.write(folder / out.name, columns, counts, facts, digest.texts if keep_text else None)
            (folder / out.name).replace(out)
    except OSError as error:
        raise ResultsError(f"cannot write {out}: {error.strerror or error}") from error
    return out, facts


@contextlib.contextmanager
def _watch(console: Console, file: Path) -> Iterator[Callable[[int], None]]:
    """Yield what is to be called with bytes read: a bar on a terminal, else a line every ten seconds."""
    size = file.stat().st_size
    if console.is_terminal:
        columns = (BarColumn(), TaskProgressColumn(), DownloadColumn(), TimeRemainingColumn())
        with Progress(f"reading {file.name}", *columns, console=console, transient=True) as bar:
            task = bar.add_task("", total=size)
            yield functools.partial(bar.advance, task)
        return
    done, next_s = 0, time.monotonic() + _LINE_S

    def line(count: int) -> None:
        nonlocal done, next_s
        done += count
        if time.monotonic() >= next_s:
            next_s = time.monotonic() + _LINE_S
            console.print(f"reading {file.name}: {done / size:.0%}", highlight=False, soft_wrap=True)

    yield line


def _default_name(log: Path) -> Path:
    name = log.name.removesuffix(".gz")
    return Path(name.removesuffix(Path(name).suffix) + WORKLOAD_FILES[0])


def _checked(out: Path, file: Path) -> Path:
    if out.suffix not in WORKLOAD_FILES:
        raise ResultsError(f"a workload file's name must end in {' or '.join(WORKLOAD_FILES)}, got {str(out)!r}")
    check_target(out)
    if out.exists() and out.samefile(file):
        raise ResultsError(f"cannot write {out}: it is the log itself")
    return out


def _accepted(reader: LogReader, misfits: Counter[str], repair: bool) -> Iterator[Entry]:
    """Yield the entries; after the first one that needs a repair which is not allowed, only count the others.

    Raises:
        WorkloadError: at the end, if there was one; with the counts.
    """
    first: WorkloadError | None = None
    for entry in reader:
        misfits.update(entry.misfits.keys())
        if entry.misfits and not repair:
            first = first or next(iter(entry.misfits.values()))
        if first is None:
            yield entry
    if first is not None:
        counts = ", ".join(f"{misfits[kind]} {meaning}" for kind, meaning in _REPAIRS.items() if misfits[kind])
        raise WorkloadError(f"{first} (rows in all: {counts}); --repair accepts them") from first


def _batches(entries: Iterable[Entry]) -> Iterator[list[Entry]]:
    batch: list[Entry] = []
    size = 0
    for entry in entries:
        batch.append(entry)
        size += len(entry.prompt) + len(entry.thinking) + (0 if entry.answer is None else len(entry.answer))
        if len(batch) == _BATCH_ROWS or size >= _BATCH_CHARS:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch
