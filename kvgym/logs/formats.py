"""Servers and gateways write logs in these formats: SGLang's, OpenAI-style JSON lines, ShareGPT conversations."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path

from kvgym.errors import UnknownNameError, WorkloadError, did_you_mean
from kvgym.logs.chat import render
from kvgym.logs.conversations import ConversationReader
from kvgym.logs.entries import Entry, read_entry, read_finished
from kvgym.logs.rows import Row, open_bytes, parse_object, read_lines, readable

_PREFIX = re.compile(r"\[\d{4}-[^\]]*\] ?")  # SGLang's logger puts the time before the JSON


class LogReader:
    """Iterates over the requests of one log file.

    Args:
        path: JSON lines, or for ShareGPT a JSON array; plain or gzip.
        form: a key of `FORMATS`, or "auto" to tell by the beginning of the file.
        watch: called with the number of bytes whenever some have been read.

    Attributes:
        form: the format read.
        skipped: rows that are no requests: what else an SGLang log tells, conversations without a question and answer.

    Raises:
        UnknownNameError: there is no such format.
        WorkloadError: a row is malformed (raised while iterating, with file, line and field).
    """

    def __init__(self, path: Path, form: str = "auto", watch: Callable[[int], None] | None = None) -> None:
        known = ("auto", *FORMATS)
        if form not in known:
            hint = did_you_mean(form, known) or ";"
            raise UnknownNameError(f"unknown log format {form!r}{hint} known: {', '.join(known)}")
        self.path, self.watch = path, watch
        self.form = _guess(path) if form == "auto" else form
        self.skipped = 0

    def __iter__(self) -> Iterator[Entry]:
        before: Entry | None = None
        for entry in FORMATS[self.form](self):
            if before is not None:
                self._check_order(before, entry)
            before = entry
            yield entry

    def _check_order(self, before: Entry, entry: Entry) -> None:
        now_s, last_s = entry.time_s, before.time_s
        if (now_s is None) != (last_s is None):
            has = "none" if now_s is None else "one"
            raise WorkloadError(f"{entry.where}: either every row has a timestamp or no row has; this one has {has}")
        # SGLang writes a row when its request has finished: there the order of arrivals is another one
        if self.form != "sglang" and now_s is not None and last_s is not None and now_s < last_s:
            entry.misfits["late_rows"] = WorkloadError(
                f"{entry.where}: the timestamp must be not less than the previous row's, got {last_s - now_s:g} s less"
            )

    def openai(self) -> Iterator[Entry]:
        """Yield one request per line."""
        for line, text in read_lines(self.path, self.watch):
            yield read_entry(Row(f"{self.path.name}, line {line}", parse_object(text, self.path, line)))

    def sglang(self) -> Iterator[Entry]:
        """Yield the finished requests of ``--log-requests-format json`` or ``--export-metrics-to-file``."""
        for line, text in read_lines(self.path, self.watch):
            text = text[match.end() :] if (match := _PREFIX.match(text)) else text
            data = parse_object(text, self.path, line) if text.lstrip().startswith("{") else {"event": "message"}
            event, rid = data.get("event", "request.finished"), str(data.get("rid"))
            if event != "request.finished" or rid.startswith("HEALTH_CHECK"):
                self.skipped += 1
            else:
                yield read_finished(Row(f"{self.path.name}, line {line}", data))

    def sharegpt(self) -> Iterator[Entry]:
        """Yield each turn of each conversation; its prompt holds the turns before it."""
        reader = ConversationReader(self.path, self.watch)
        for turns in reader:
            where, said = f"{self.path.name}, conversation {reader.whole}", []
            for question, answer in turns:
                said.append(Row(where, {"role": "user", "content": question}))
                yield Entry(where, render(said), answer, session=str(reader.whole))
                said.append(Row(where, {"role": "assistant", "content": answer}))
        self.skipped = reader.unusable + reader.cut


FORMATS: dict[str, Callable[[LogReader], Iterator[Entry]]] = {
    "openai": LogReader.openai,
    "sglang": LogReader.sglang,
    "sharegpt": LogReader.sharegpt,
}
"""Name of a log format -> how it is read."""


def _guess(path: Path) -> str:
    with readable(path), open_bytes(path) as stream:
        head = stream.read(32).decode("utf-8-sig", "replace")  # no line: a ShareGPT dump may be one line of a gigabyte
    if _PREFIX.match(head):
        return "sglang"
    if head.lstrip().startswith("["):
        return "sharegpt"
    line, text = next(read_lines(path))
    return "sglang" if {"event", "obj", "request_parameters"} & set(parse_object(text, path, line)) else "openai"
