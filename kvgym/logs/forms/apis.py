"""Reads the fields in which the APIs of OpenAI (chat, completions, Responses, batch) and Anthropic differ."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from kvgym.logs.rows import Row

READ = frozenset(
    {"prompt_tokens", "input_tokens", "completion_tokens", "output_tokens", "cache_creation_input_tokens"}
    | {"cache_read_input_tokens", "status", "status_code", "http_status", "code", "error", "stop_reason"}
)
"""Names that are read here."""
_FAILED_WORDS = {"failed", "error", "errored", "cancelled", "canceled", "aborted", "timeout", "expired"}
_FAILED_REASONS = {"error", "abort", "aborted", "cancelled", "canceled"}
_CLIENT_ERROR, _LAST = 400, 600


def prompt_tokens(usage: Row) -> int | None:
    """Return the prompt's tokens as the server counted them, cached ones included; None: it did not say.

    OpenAI's counts contain what was cached; Anthropic's `input_tokens` does not, it stands in two more fields.
    """
    if usage.data.get("prompt_tokens") is not None:
        return usage.tokens("prompt_tokens", 0)
    if usage.data.get("input_tokens") is None:
        return None
    parts = ("input_tokens", "cache_creation_input_tokens", "cache_read_input_tokens")
    return sum(usage.tokens(name, 0) for name in parts if usage.data.get(name) is not None)


def output_tokens(usage: Row) -> int | None:
    """Return the generated tokens, reasoning included, as the server counted them; None: it did not say."""
    for name in ("completion_tokens", "output_tokens"):
        if usage.data.get(name) is not None:
            return usage.tokens(name, 0)
    return None


def failure(places: Iterable[Row]) -> str:
    """Return "failed" or "cancelled" if a row says so of its request, else ""."""
    for place in places:
        data = place.data
        for name in ("status_code", "http_status", "code", "status"):
            value = data.get(name)
            if isinstance(value, str) and value.isdigit():
                value = int(value)
            if isinstance(value, int) and not isinstance(value, bool) and _CLIENT_ERROR <= value < _LAST:
                return "cancelled" if value == 499 else "failed"
            if isinstance(value, str) and value.lower() in _FAILED_WORDS:
                return "cancelled" if value.lower().startswith(("cancel", "abort")) else "failed"
        if data.get("error"):
            return "failed"
        choices = data.get("choices")
        first = choices[0] if isinstance(choices, list) and choices and isinstance(choices[0], dict) else {}
        meta = data.get("meta_info")
        reason: Any = first.get("finish_reason") or (meta.get("finish_reason") if isinstance(meta, dict) else None)
        reason = reason.get("type") if isinstance(reason, dict) else reason
        if isinstance(reason, str) and reason.lower() in _FAILED_REASONS:
            return "failed" if reason.lower() == "error" else "cancelled"
    return ""


def system_message(request: Row) -> Iterator[Row]:
    """Yield Anthropic's `system` as the message that it is to the model."""
    system = request.data.get("system")
    if system:
        yield Row(f"{request.where}, system", {"role": "system", "content": system})


def is_chat(request: Row, response: Row) -> bool:
    """Say whether `input` is the Responses API's, which a server renders as a chat, and no ready prompt."""
    given = request.data.get("input")
    if isinstance(given, list):
        return bool(given) and all(isinstance(item, dict) for item in given)
    return (
        isinstance(given, str)
        and bool(given)
        and ("instructions" in request.data or isinstance(response.data.get("output"), list))
    )


def input_messages(request: Row) -> Iterator[Row]:
    """Yield the messages of a Responses request: its instructions, then its input's items."""
    if isinstance(text := request.data.get("instructions"), str) and text:
        yield Row(f"{request.where}, instructions", {"role": "system", "content": text})
    given = request.data["input"]
    if isinstance(given, str):
        yield Row(f"{request.where}, input", {"role": "user", "content": given})
        return
    for item in request.nested("input"):
        yield from _message(item)


def answer_message(response: Row) -> Row | None:
    """Return the answer as one message: Responses' list of output items, Anthropic's list of content parts."""
    output: Any = response.data.get("output")
    if isinstance(output, list) and all(isinstance(item, dict) for item in output):
        items = [item for item in response.nested("output") if isinstance(item.data.get("type"), str)]
        if not items:
            return None
        content: list[Any] = []
        calls: list[Any] = []
        for item in items:
            if item.data["type"] == "message" and isinstance(item.data.get("content"), list):
                content += item.data["content"]
            elif item.data["type"] == "function_call":
                calls.append({"function": _called(item)})
        return Row(f"{response.where}, output", {"content": content, "tool_calls": calls})
    parts: Any = response.data.get("content")
    if isinstance(parts, list) and parts and all(isinstance(part, dict) for part in parts):
        return Row(f"{response.where}, content", {"content": parts})
    return None


def _message(item: Row) -> Iterator[Row]:
    kind = item.data.get("type")
    if kind == "function_call":
        yield Row(item.where, {"role": "assistant", "content": None, "tool_calls": [{"function": _called(item)}]})
    elif kind == "function_call_output":
        output = item.data.get("output")
        yield Row(item.where, {"role": "tool", "content": output if isinstance(output, str | list) else str(output)})
    elif kind != "reasoning":
        yield item


def _called(item: Row) -> dict[str, Any]:
    return {"name": item.data.get("name"), "arguments": item.data.get("arguments")}
