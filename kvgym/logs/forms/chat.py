"""Chat messages have one rendering as text, so that the chat and the completion form of a prompt are the same.

A message is ``<|im_start|>ROLE``, a line end, its content, ``<|im_end|>`` and a line end; a request ends with
``<|im_start|>assistant`` and a line end, after which the answer comes (the ChatML form of Qwen and others). Around it:

- tools come first, in a message of the role ``tools``, as JSON with the keys in the order of the log, which is the one
  that a server renders;
- of a content in parts the texts are taken; thinking is left out, as servers do in later prompts; any other part stands
  for itself by the checksum of its JSON, so that equal images are equal and different ones are not;
- tool calls follow the content, each on a line of its own as JSON; arguments that come as text are parsed first, as
  templates do, so that their spacing says nothing;
- reasoning comes before the content in ``<think>`` tags where it is generated, and not in later prompts.
"""

from __future__ import annotations

import contextlib
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
    parts = list(message.nested("content")) if isinstance(content, list) else []
    text = content or "" if not parts else "".join(_part(part) for part in parts if not _is_call(part))
    calls = [part.data for part in parts if _is_call(part)]
    if message.data.get("tool_calls"):
        calls += [call.data.get("function", call.data) for call in message.nested("tool_calls")]
    return "\n".join(filter(None, (text if isinstance(text, str) else "", *map(_call, calls))))


def thinking_text(message: Row) -> str:
    """Return the reasoning of an answer's message: its own field, or the thinking parts of its content."""
    for name in ("reasoning_content", "reasoning", "thinking"):
        if isinstance(value := message.data.get(name), str) and value:
            return value
    content = message.data.get("content")
    parts = content if isinstance(content, list) else []
    texts = (part.get("thinking") for part in parts if isinstance(part, dict) and part.get("type") == "thinking")
    return "\n".join(text for text in texts if isinstance(text, str))


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
    if part.data.get("type") in ("thinking", "redacted_thinking", "reasoning"):
        return ""
    if part.data.get("type") == "tool_result" and isinstance(part.data.get("content"), str | list | None):
        return message_text(part)
    return f"<|{part.data.get('type', 'part')}:{zlib.crc32(_canonical(part.data).encode()):08x}|>"


def _is_call(part: Row) -> bool:
    return part.data.get("type") == "tool_use"


def _call(function: dict[str, Any]) -> str:
    """Return a tool call as JSON: its name and its arguments, which Anthropic calls input."""
    if function.get("type") == "tool_use":
        function = {"name": function.get("name"), "arguments": function.get("input")}
    arguments = function.get("arguments")
    if isinstance(arguments, str):
        with contextlib.suppress(ValueError, RecursionError):
            function = {**function, "arguments": json.loads(arguments)}
    return _canonical(function)


def _canonical(value: Any) -> str:
    # ASCII only: half a surrogate pair in the log stays an escape
    return json.dumps(value)
