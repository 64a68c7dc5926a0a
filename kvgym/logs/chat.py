"""Chat messages have one rendering as text, so that the chat and the completion form of a prompt are the same.

A message is ``<|im_start|>ROLE``, a line end, its content, ``<|im_end|>`` and a line end; a request ends with
``<|im_start|>assistant`` and a line end, after which the answer comes (the ChatML form of Qwen and others). Around it:

- tools come first, in a message of the role ``tools``, as JSON with sorted keys;
- of a content in parts the texts are taken; any other part stands for itself by the checksum of its JSON, so that
  equal images are equal and different ones are not;
- tool calls follow the content, each on a line of its own as JSON;
- reasoning comes before the content in ``<think>`` tags where it is generated, and not in later prompts.
"""

from __future__ import annotations

import json
import re
import zlib
from collections.abc import Iterable
from typing import Any

from kvgym.logs.rows import Row

ANSWER_MARK = "<|im_start|>assistant\n"
_END = "<|im_end|>\n"
_MARKS = re.compile(r"(<\|im_start\|>\w*\n|<\|im_end\|>\n?)")


def render(messages: Iterable[Row], tools: Any = None) -> str:
    """Return the prompt that asks for the answer to `messages`.

    Raises:
        WorkloadError: a message has no role, or content that is neither text, nor parts, nor nothing.
    """
    parts = [_message("tools", _canonical(tools))] if tools else []
    for message in messages:
        role = message.data.get("role")
        if not isinstance(role, str) or not re.fullmatch(r"\w+", role):
            raise message.error("role", "a word such as system, user, assistant or tool")
        parts.append(_message(role, message_text(message)))
    return "".join(parts) + ANSWER_MARK


def message_text(message: Row) -> str:
    """Return the content of a message and its tool calls."""
    content = message.data.get("content")
    if not isinstance(content, str | list | None):
        raise message.error("content", "text, a list of parts, or null")
    text = content or "" if not isinstance(content, list) else "".join(_part(p) for p in message.nested("content"))
    calls = message.data.get("tool_calls")
    if not calls:
        return text
    functions = (call.data.get("function", call.data) for call in message.nested("tool_calls"))
    return "\n".join(filter(None, (text, *map(_canonical, functions))))


def split(text: str) -> list[str]:
    """Return `text` cut at the marks of the rendering, which stay as pieces of their own.

    Pieces are tokenised one by one. So no token reaches over a mark, and an answer has the same tokens by itself and
    inside a later prompt.
    """
    return [piece for piece in _MARKS.split(text) if piece]


def last_answer(pieces: list[str]) -> tuple[int, int] | None:
    """Return the range of pieces that make the last answer in a rendered prompt (its open end is none)."""
    for i in range(len(pieces) - 2, -1, -1):
        if pieces[i] == ANSWER_MARK:
            end = i + 1
            while end < len(pieces) and not pieces[end].startswith("<|im_"):
                end += 1
            return (i + 1, end) if end < len(pieces) else None
    return None


def _message(role: str, text: str) -> str:
    return f"<|im_start|>{role}\n{text}{_END}"


def _part(part: Row) -> str:
    text = part.data.get("text")
    if isinstance(text, str):
        return text
    return f"<|{part.data.get('type', 'part')}:{zlib.crc32(_canonical(part.data).encode()):08x}|>"


def _canonical(value: Any) -> str:
    # ASCII only: half a surrogate pair in the log stays an escape
    return json.dumps(value, sort_keys=True)
