"""Request logs as servers, gateways and data sets write them: a format reads a file's rows as requests."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from kvgym.errors import UnknownNameError, WorkloadError, did_you_mean
from kvgym.logs.containers import Read, kind_of, read_objects
from kvgym.logs.entries import Entry, read_entry, read_finished
from kvgym.logs.forms import lengths
from kvgym.logs.forms.chat import render
from kvgym.logs.forms.conversations import ConversationReader, turns_of
from kvgym.logs.rows import Row, open_bytes, parse_object, read_lines, readable

_PREFIX = re.compile(r"\[\d{4}-[^\]]*\] ?")  # SGLang's logger puts the time before the JSON
_ENOUGH = 1000
"""If none of so many rows can be read, the file is no log of this form."""
_AT = re.compile(r"^[^:]*: ")  # where a message says that it comes from
_GOT = re.compile(r",? (got|the field is missing).*", re.DOTALL)


class LogReader:
    """Iterates over the requests of one log file; rows that can't be read are counted and passed over.

    Args:
        path: the log, plain or packed.
        form: a key of `FORMATS`, or "auto" to tell by the beginning of the file.
        watch: called with the number of bytes whenever some have been read.

    Attributes:
        form: the format read.
        skipped: rows that are no requests: what else an SGLang log tells, conversations without a question and answer.
        bad: kind of mistake -> how many rows have it, and the first one's message.
        left_out: failed, cancelled or empty -> requests that nobody served, which are passed over.

    Raises:
        UnknownNameError: there is no such format.
        WorkloadError: the file is none of that format, or none of its first thousand rows can be read.
    """

    def __init__(self, path: Path, form: str = "auto", watch: Callable[[int], None] | None = None) -> None:
        known = ("auto", *FORMATS)
        if form not in known:
            hint = did_you_mean(form, known) or ";"
            raise UnknownNameError(f"unknown log format {form!r}{hint} known: {', '.join(known)}")
        self.path, self.watch = path, watch
        self.form = _guess(path) if form == "auto" else form
        self.skipped = self._rows = 0
        self.bad: dict[str, tuple[int, str]] = {}
        self.left_out: dict[str, int] = {}

    def __iter__(self) -> Iterator[Entry]:
        before: Entry | None = None
        for entry in FORMATS[self.form](self):
            if entry.left_out and not (entry.left_out == "empty" and entry.misfits):
                self.left_out[entry.left_out] = self.left_out.get(entry.left_out, 0) + 1
                continue
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

    def _try(self, read: Callable[[], list[Entry]]) -> list[Entry]:
        """Return what `read` makes of a row; nothing, and a count, where it can't."""
        self._rows += 1
        try:
            return read()
        except WorkloadError as error:
            kind = _GOT.sub("", _AT.sub("", str(error)))[:80]
            count, first = self.bad.get(kind, (0, str(error)))
            self.bad[kind] = (count + 1, first)
            if self._rows >= _ENOUGH and sum(count for count, _ in self.bad.values()) == self._rows:
                raise
            return []

    def _each(self, read: Callable[[Row], list[Entry]]) -> Iterator[Entry]:
        """Yield what `read` makes of every row of the file."""
        for where, get in read_objects(self.path, self.watch):

            def entries(where: str = where, get: Read = get) -> list[Entry]:
                return read(Row(where, get()))

            yield from self._try(entries)

    def openai(self) -> Iterator[Entry]:
        """Yield one request per row; of a row that is a whole conversation, one per answer."""
        return self._each(_requests)

    def sglang(self) -> Iterator[Entry]:
        """Yield the finished requests of ``--log-requests-format json`` or ``--export-metrics-to-file``."""
        for line, text in read_lines(self.path, self.watch):
            yield from self._try(functools.partial(self._finished, line, text))

    def _finished(self, line: int, text: str) -> list[Entry]:
        text = text[match.end() :] if (match := _PREFIX.match(text)) else text
        data = parse_object(text, self.path, line) if text.lstrip().startswith("{") else {"event": "message"}
        event, rid = data.get("event", "request.finished"), str(data.get("rid"))
        if event != "request.finished" or rid.startswith("HEALTH_CHECK"):
            self.skipped += 1
            return []
        return [read_finished(Row(f"{self.path.name}, line {line}", data))]

    def sharegpt(self) -> Iterator[Entry]:
        """Yield each turn of each conversation; its prompt holds the turns before it."""
        if kind_of(self.path) != "json":
            yield from self._each(self._conversation)
            return
        reader = ConversationReader(self.path, self.watch)
        for turns in reader:
            where = f"{self.path.name}, conversation {reader.whole}"
            yield from _of_turns(where, turns, str(reader.whole))
        self.skipped = reader.unusable + reader.cut

    def _conversation(self, row: Row) -> list[Entry]:
        turns = turns_of(row.data, row.where)
        if not turns:
            self.skipped += 1
        return _of_turns(row.where, turns, row.where)

    def mooncake(self) -> Iterator[Entry]:
        """Yield the requests of a trace of lengths and block hashes, each block as made-up token ids."""
        blocks = lengths.Blocks(self.path)
        return self._each(lambda row: [blocks.read(row)])

    def lengths(self) -> Iterator[Entry]:
        """Yield requests of which only lengths are known: their prompts share nothing."""
        count = 0

        def read(row: Row) -> list[Entry]:
            nonlocal count
            count += 1
            return [lengths.read_lengths(row, count)]

        return self._each(read)

    def vllm(self) -> Iterator[Entry]:
        """Yield the requests of vLLM's text log (``--enable-log-requests``); all its other lines are skipped."""
        for line, text in read_lines(self.path, self.watch):
            found = self._try(functools.partial(lengths.read_vllm, f"{self.path.name}, line {line}", text))
            self.skipped += not found
            yield from found


FORMATS: dict[str, Callable[[LogReader], Iterator[Entry]]] = {
    "openai": LogReader.openai,
    "sglang": LogReader.sglang,
    "sharegpt": LogReader.sharegpt,
    "mooncake": LogReader.mooncake,
    "lengths": LogReader.lengths,
    "vllm": LogReader.vllm,
}
"""Name of a log format -> how it is read. openai: rows of OpenAI's and Anthropic's APIs, batch files, message lists."""


_NO_GENERATION = ("/embeddings", "/moderations", "/rerank", "/score", "/tokenize", "/images")
"""Ends of a request's path where nothing is generated from its prompt."""


def _requests(row: Row) -> list[Entry]:
    path = next((row.data[name] for name in ("url", "endpoint", "path") if isinstance(row.data.get(name), str)), "")
    if path.rstrip("/").endswith(_NO_GENERATION):
        raise WorkloadError(f"{row.where}: a request to {path[:40]} generates nothing")
    messages = row.data.get("messages")
    last = messages[-1] if isinstance(messages, list) and messages else None
    answered = any(row.data.get(name) is not None for name in ("response", "choices", "completion", "output"))
    if isinstance(last, dict) and last.get("role") == "assistant" and not answered:
        return _of_messages(row, messages or [])
    return [read_entry(row)]


def _of_messages(row: Row, messages: list[Any]) -> list[Entry]:
    """Return the requests of a message list that ends in an answer, as data sets have them: one per answer."""
    found = []
    for at, message in enumerate(messages):
        if at and isinstance(message, dict) and message.get("role") == "assistant":
            answer = {"choices": [{"message": message}]}
            data = {**row.data, "messages": messages[:at], "response": answer}
            entry = read_entry(Row(row.where, data))
            entry.session = entry.session or row.where
            found.append(entry)
    return found


def _of_turns(where: str, turns: list[tuple[str, str]], session: str) -> list[Entry]:
    said: list[Row] = []
    found = []
    for question, answer in turns:
        said.append(Row(where, {"role": "user", "content": question}))
        found.append(Entry(where, render(said), answer, session=session))
        said.append(Row(where, {"role": "assistant", "content": answer}))
    return found


def _guess(path: Path) -> str:
    """Return the format that the beginning of a file looks like."""
    with readable(path), open_bytes(path) as stream:
        head = stream.read(64).decode("utf-8-sig", "replace")  # no line: a dump may be one line of a gigabyte
    if _PREFIX.match(head):
        return "sglang"
    kind = kind_of(path)
    if kind in ("lines", "csv") and not head.lstrip().startswith("{") and lengths.looks_like_vllm(path):
        return "vllm"
    try:
        first = next((get() for _, get in read_objects(path)), {})
    except WorkloadError:
        return "sharegpt" if kind == "json" else "openai"
    keys = set(first)
    if "conversations" in keys:
        return "sharegpt"
    if lengths.is_trace(keys):
        return "mooncake"
    if lengths.length_fields(keys) is not None:
        return "lengths"
    if {"event", "obj", "request_parameters"} & keys:
        return "sglang"
    return "sharegpt" if kind == "json" and not keys else "openai"
