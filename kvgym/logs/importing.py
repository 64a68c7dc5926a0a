"""Imports one's own traffic: a request log becomes a workload file, read as a stream, without the texts."""

from __future__ import annotations

import contextlib
import functools
import getpass
import hashlib
import logging
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
from kvgym.logs.survey import Survey
from kvgym.logs.tokens import load_tokeniser
from kvgym.records import check_target

logger = logging.getLogger(__name__)
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
        path: the log (`formats` says what is read), plain, gzip, zstd or xz.
        out: where to, ending in one of WORKLOAD_FILES; none: the log's name in the current folder.
        form: format of the log, or "auto".
        tokenizer: Hugging Face tokenizer.json; none: the built-in token counter.
        keep_text: put prompts and answers as text into the file.
        repair: leave out rows that can't be read, accept rows out of order, wrong id counts (the ids count) and empty
            answers (1 token).
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
            reader, survey = LogReader(file, form, watch), Survey()
            with Digest(tokenise, folder, exact=tokenizer is not None, keep_text=keep_text) as digest:
                for batch in _batches(survey.seen(_accepted(reader, misfits, repair))):
                    digest.add(batch)
            _check_bad(reader, repair)
            if not digest.count:
                left = "".join(f", {count} {kind}" for kind, count in reader.left_out.items())
                raise WorkloadError(f"{file.name}: no request in it ({reader.skipped} rows are none{left})")
            columns, counts, found = digest.finish()
            survey.check_times(columns["arrival_s"], file.name)
            facts = {
                "source": file.name,
                "format": reader.form,
                "tokens": Path(tokenizer).name if tokenizer else "built-in counter",
                "rows_skipped": reader.skipped,
                "rows_unusable": sum(count for count, _ in reader.bad.values()),
                **{f"requests_{kind}": count for kind, count in sorted(reader.left_out.items())},
                **{f"repaired_{kind}": misfits[kind] for kind in _REPAIRS},
                **found,
                "fields_not_read": survey.fields_not_read,
            }
            facts["notes"] = survey.notes(facts, reader.bad)
            columnar.write(folder / out.name, columns, counts, facts, digest.texts if keep_text else None)
            (folder / out.name).replace(out)
    except OSError as error:
        raise ResultsError(f"cannot write {out}: {error.strerror or error}") from error
    return out, facts


def as_workload_file(file: Path) -> Path:
    """Return `file` if it is a workload file, else one that its import has made and that is kept for the next time.

    It lies in the temporary folder, named by the log's place, size and time, so that a changed log is imported anew.
    What the import has to say is logged as warnings the first time.

    Raises:
        WorkloadError: the log is malformed.
        ResultsError: the folder can't be written.
    """
    if columnar.is_workload(file) or file.suffix in WORKLOAD_FILES[:1]:
        return file
    state = file.stat()
    name = hashlib.blake2b(f"{file.resolve()} {state.st_size} {state.st_mtime_ns}".encode(), digest_size=8).hexdigest()
    folder = Path(tempfile.gettempdir()) / f"kvgym-imports-{getpass.getuser()}"
    made = folder / f"{name}{WORKLOAD_FILES[0]}"
    if not made.exists():
        try:
            folder.mkdir(mode=0o700, exist_ok=True)
        except OSError as error:
            raise ResultsError(f"cannot keep the import of {file.name} in {folder}: {error.strerror}") from error
        _, facts = import_log(file, made)
        for note in facts["notes"]:
            logger.warning("%s: %s", file.name, note)
    return made


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
    name = log.name
    for packed in (".gz", ".zst", ".xz"):
        name = name.removesuffix(packed)
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


def _check_bad(reader: LogReader, repair: bool) -> None:
    """Raise what is wrong with rows that could not be read, kind by kind, unless `repair` leaves them out."""
    if not reader.bad or repair:
        return
    (_, first), *_ = reader.bad.values()
    total = sum(count for count, _ in reader.bad.values())
    more = "; ".join(f"{count} x {kind} (first: {message.split(': ')[0]})" for kind, (count, message) in
                     reader.bad.items())  # fmt: skip
    kinds = f" (rows that can't be read: {total}: {more})" if total > 1 else ""
    raise WorkloadError(f"{first}{kinds}; --repair leaves such rows out")


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
