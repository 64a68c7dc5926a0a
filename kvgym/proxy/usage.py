"""Reads what a server reports of an answer, while its bytes pass: cached, prompt and generated tokens."""

from __future__ import annotations

import json
from typing import Any, NamedTuple

_MOST = 1 << 20
"""Bytes of an answer that are kept to read the report from."""


class Reported(NamedTuple):
    """Tokens as the server counted them; -1: it did not say."""

    prompt_tokens: int = -1
    cached_tokens: int = -1
    output_tokens: int = -1


class UsageReader:
    """Takes the bytes of one answer; keeps the last event that reports usage, or the beginning of a plain body."""

    def __init__(self, streamed: bool) -> None:
        self._streamed = streamed
        self._rest, self._last = b"", b""
        self._body = bytearray()
        self.events = 0

    def feed(self, chunk: bytes) -> None:
        """Take the next bytes."""
        if not self._streamed:
            if len(self._body) < _MOST:
                self._body += chunk[: _MOST - len(self._body)]
            return
        *lines, rest = (self._rest + chunk).split(b"\n")
        self._rest = rest if len(rest) < _MOST else b""
        for line in lines:
            if line.startswith(b"data:"):
                self.events += line[5:].strip() != b"[DONE]"
                if b"usage" in line or b"meta_info" in line:
                    self._last = line[5:]

    def report(self) -> Reported:
        """Return what was reported."""
        text = self._last if self._streamed else bytes(self._body)
        try:
            data = json.loads(text) if text else None
        except ValueError:
            data = None
        found = _find(data)
        return found._replace(output_tokens=self.events) if self._streamed and found.output_tokens < 0 else found


def _find(data: Any) -> Reported:
    if not isinstance(data, dict):
        return Reported()
    response = data.get("response")
    usage = (
        data.get("usage") or (response.get("usage") if isinstance(response, dict) else None) or data.get("meta_info")
    )
    if not isinstance(usage, dict):
        return Reported()
    details = usage.get("prompt_tokens_details") or usage.get("input_tokens_details")
    cached = details.get("cached_tokens") if isinstance(details, dict) else usage.get("cached_tokens")
    return Reported(
        _count(usage.get("prompt_tokens", usage.get("input_tokens"))),
        _count(cached),
        _count(usage.get("completion_tokens", usage.get("output_tokens"))),
    )


def _count(value: Any) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**31 else -1
