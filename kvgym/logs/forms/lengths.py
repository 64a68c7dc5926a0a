"""Reads what has no prompts: block-hash traces, tables of lengths, and vLLM's text log."""

from __future__ import annotations

import ast
import itertools
import re
from pathlib import Path
from typing import Any

import numpy as np

from kvgym.errors import WorkloadError
from kvgym.logs import fields
from kvgym.logs.containers import read_objects
from kvgym.logs.entries import SESSIONS, Entry
from kvgym.logs.rows import Row, read_lines

PROMPT_LENGTHS = ("input_length", "contexttokens", "context_tokens", "request tokens", "prompt_tokens", "input_tokens",
                  "num_prompt_tokens", "prompt_len", "input_len")  # fmt: skip
ANSWER_LENGTHS = ("output_length", "generatedtokens", "generated_tokens", "response tokens", "completion_tokens",
                  "output_tokens", "num_output_tokens", "output_len")  # fmt: skip
"""Columns of lengths, in small letters: Mooncake's, Azure's, BurstGPT's and those of many benchmarks."""
_PROMPTS = {"input_ids", "messages", "prompt", "text", "input", "request", "body", "conversations", "obj"}
_BLOCKS = (16, 32, 64, 128, 256, 512, 1024, 2048)
_PEEKED = 200
_ID_BITS = 0x7FFFFFFF
_VLLM = re.compile(r"Received request (?P<id>[^\s:]+): ")
_VLLM_IDS = re.compile(r"prompt_token_ids: (\[[\d, ]*\])")
_VLLM_TEXT = re.compile(r"prompt: (?P<quote>['\"])(?P<text>.*?)(?P=quote), params: ", re.DOTALL)
_VLLM_LIMIT = re.compile(r"max_tokens=(\d+)")
_VLLM_TIME = re.compile(r"\b(\d\d)-(\d\d) (\d\d):(\d\d):(\d\d)(?:[.,](\d+))?")


def is_trace(keys: set[str]) -> bool:
    """Say whether a row's fields are those of a trace of lengths with or without block hashes."""
    return "input_length" in keys and "output_length" in keys


def length_fields(keys: set[str]) -> tuple[str, str] | None:
    """Return the fields of a row that are its lengths, where it has no prompt; None: it has none."""
    low = {key.lower(): key for key in keys}
    if _PROMPTS & set(low):
        return None
    prompt, answer = (
        next((low[name] for name in names if name in low), "") for names in (PROMPT_LENGTHS, ANSWER_LENGTHS)
    )
    return (prompt, answer) if prompt and answer else None


class Blocks:
    """Reads rows {timestamp ms, input_length, output_length, hash_ids, session_id, delay ms}.

    Mooncake's form and those made of it (AIPerf, Dynamo, Qwen-Bailian). The block size is the smallest usual one with
    which the hashes of the first rows suffice for their lengths. A row without hashes shares nothing; of a session's
    later rows `delay` is the time since the answer before.

    Args:
        path: the trace; its first rows are read at once.

    Raises:
        WorkloadError: no usual block size fits.
    """

    def __init__(self, path: Path) -> None:
        self.block_tokens = _block_size(path)
        self._ends: dict[str, float] = {}
        self._alone = 0

    def read(self, row: Row) -> Entry:
        """Return the request of a row."""
        tokens, hashes = row.tokens("input_length"), row.data.get("hash_ids")
        session = fields.label([row], SESSIONS)
        output = row.tokens("output_length", 0)
        at_s, clock = self._time(row, session)
        if hashes is None:
            self._alone += 1
            ids = made_up(self._alone, tokens)
        else:
            if not isinstance(hashes, list) or not all(type(each) is int for each in hashes):
                raise row.error("hash_ids", "a list of whole numbers")
            if len(hashes) * self.block_tokens < tokens:
                raise row.error("hash_ids", f"one id per {self.block_tokens} tokens of the prompt ({tokens})")
            ids = np.concatenate([_block(each, self.block_tokens) for each in hashes])[:tokens]
        entry = Entry(row.where, ids, time_s=at_s, clock=clock, session=session)
        entry.prompt_tokens, entry.output_tokens = tokens, output
        if output == 0:
            entry.left_out = "empty"
        return entry

    def _time(self, row: Row, session: str) -> tuple[float | None, str]:
        if row.data.get("timestamp") is not None:
            value = row.seconds("timestamp", unit="milliseconds") / 1000.0
            self._ends[session] = value
            return value, "timestamp (ms)"
        if row.data.get("delay") is None:
            return None, ""
        if session not in self._ends:
            raise row.error("timestamp", "given in the first row of a session that has delays")
        self._ends[session] += row.seconds("delay", unit="milliseconds") / 1000.0
        return self._ends[session], "delay (ms)"


def read_lengths(row: Row, number: int) -> Entry:
    """Return a request of which a row knows the lengths only.

    Raises:
        WorkloadError: it has none.
    """
    found = length_fields(set(row.data))
    if found is None:
        raise WorkloadError(
            f"{row.where}: expected a column of prompt and one of answer lengths, got {', '.join(row.data)}"
        )
    low = Row(row.where, {name.lower(): value for name, value in row.data.items()})
    prompt, answer = (name.lower() for name in found)
    at_s, clock = fields.clock([low]) or (None, "")
    output = low.tokens(answer, 0)
    entry = Entry(row.where, made_up(number, low.tokens(prompt)), time_s=at_s, clock=clock)
    entry.prompt_tokens, entry.output_tokens = len(entry.prompt), output
    entry.session = fields.label([low], ("session id", *SESSIONS))
    if output == 0:
        entry.left_out = "empty"
    return entry


def looks_like_vllm(path: Path) -> bool:
    """Say whether one of the first lines is a request of vLLM's log."""
    return any(_VLLM.search(text) for _, text in itertools.islice(read_lines(path), _PEEKED))


def read_vllm(where: str, text: str) -> list[Entry]:
    """Return the request of one line of vLLM's log; nothing where the line is about something else."""
    if not (found := _VLLM.search(text)):
        return []
    rest = text[found.end() :]
    prompt: Any = None
    if ids := _VLLM_IDS.search(rest):
        prompt = np.array(ast.literal_eval(ids.group(1)), np.int64)
    if prompt is None or not len(prompt):
        words = _VLLM_TEXT.search(rest)
        if words is None or not words.group("text"):
            raise WorkloadError(f"{where}: neither prompt_token_ids nor a prompt in vLLM's request line")
        quote = words.group("quote")
        prompt = ast.literal_eval(f"{quote}{words.group('text')}{quote}")
    entry = Entry(where, prompt)
    if limit := _VLLM_LIMIT.search(rest):
        entry.max_new_tokens = int(limit.group(1))
    if stamp := _VLLM_TIME.search(text[: found.start()]):
        month, day, hour, minute, second = map(int, stamp.groups()[:5])
        part = float(f"0.{stamp.group(6)}") if stamp.group(6) else 0.0
        entry.time_s = ((month * 31 + day) * 24 + hour) * 3600.0 + minute * 60.0 + second + part
        entry.clock = "the logger's time (no year)"
    return [entry]


def made_up(number: int, count: int) -> np.ndarray:
    """Return `count` ids that only the request of this number has."""
    return (np.arange(count, dtype=np.int64) * 2_654_435_761 + number * 97_531 + 11) & _ID_BITS


def _block(hash_id: int, tokens: int) -> np.ndarray:
    return (np.arange(tokens, dtype=np.int64) + (hash_id & 0x7FFFFF) * tokens) & _ID_BITS


def _block_size(path: Path) -> int:
    least = 1.0
    for _, get in itertools.islice(read_objects(path), _PEEKED):
        try:
            row = get()
        except WorkloadError:
            continue
        hashes, tokens = row.get("hash_ids"), row.get("input_length")
        if isinstance(hashes, list) and hashes and isinstance(tokens, int):
            least = max(least, tokens / len(hashes))
    size = next((each for each in _BLOCKS if each >= least), None)
    if size is None:
        raise WorkloadError(f"{path.name}: {least:.0f} tokens for each of its hash_ids, more than any usual block")
    return size
