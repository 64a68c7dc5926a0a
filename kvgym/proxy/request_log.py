"""Writes one JSON line for each request that has ended: today's traffic as tomorrow's workload and training data."""

from __future__ import annotations

import hashlib
import json
import os
import time
from pathlib import Path
from typing import Any

import numpy as np

from kvgym.errors import ConfigError
from kvgym.proxy.seat import Ticket
from kvgym.proxy.usage import Reported

BLOCK_TOKENS = 16
"""Tokens of a hashed block; the last one of a prompt may be shorter."""
SALT_VARIABLE = "KVGYM_LOG_SALT"
"""Environment variable with the hashes' salt, for logs that belong together; without it each process draws its own."""


class RequestLog:
    """Appends rows that kvgym reads: with hashes as a Mooncake trace of 16-token blocks, with ids as a request log.

    No text is kept. Hashes are chained and salted: equal beginnings show as equal, and nothing tells what they are.

    Args:
        path: the file.
        content: "hashes" or "ids".

    Raises:
        ConfigError: the file can't be opened.
    """

    def __init__(self, path: Path, content: str) -> None:
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._file = path.open("a", encoding="utf-8", buffering=1)
        except OSError as error:
            raise ConfigError(f"cannot write the request log {path}: {error}") from error
        self._ids = content == "ids"
        salt = os.environ.get(SALT_VARIABLE)
        self._salt = salt.encode() if salt else os.urandom(16)
        self._epoch_s = time.time() - time.monotonic()

    def write(
        self, ticket: Ticket, arrived_s: float, url: str, status: int, reported: Reported, row: np.ndarray
    ) -> None:
        """Write the line of a request; `arrived_s` is of `time.monotonic`, `row` its RECORD row."""
        asked, record = ticket.asked, row[0]
        at_s = self._epoch_s + arrived_s
        latency_s = float(record["finish_s"] - record["arrival_s"])
        line: dict[str, Any] = {
            "timestamp": round(at_s, 6) if self._ids else round(1000.0 * at_s, 3),
            "input_length": len(asked.ids),
            "output_length": max(int(record["output_tokens"]), 1),
        }
        if self._ids:
            line |= {"input_ids": asked.ids.tolist(), "max_tokens": asked.max_new_tokens, "latency_s": latency_s}
        else:
            line["hash_ids"] = hash_ids(asked.ids, self._salt)
        if asked.session:
            name = asked.session if self._ids else _hashed(asked.session.encode(), self._salt)
            line["session_id"] = str(name)
        line["route"] = {
            "worker": url,
            "status": status,
            "attempts": ticket.attempts,
            "believed_tokens": ticket.believed_tokens,
            "cached_tokens": reported.cached_tokens,
            "ttft_s": round(float(record["first_token_s"] - record["arrival_s"]), 6) if ticket.first_s >= 0 else None,
            "latency_s": round(latency_s, 6),
            "predicted_s": round(ticket.predicted_s, 6) if ticket.predicted_s >= 0 else None,
        }
        self._file.write(json.dumps(line, separators=(",", ":")) + "\n")

    def close(self) -> None:
        """Close the file."""
        self._file.close()


def hash_ids(ids: np.ndarray, salt: bytes) -> list[int]:
    """Return the chained hashes of a prompt's blocks, each below 2^62."""
    found, before = [], salt
    data = ids.astype("<i8").tobytes()
    step = 8 * BLOCK_TOKENS
    for at in range(0, len(data), step):
        before = hashlib.blake2b(before + data[at : at + step], digest_size=8).digest()
        found.append(int.from_bytes(before, "little") >> 2)
    return found


def _hashed(text: bytes, salt: bytes) -> int:
    return int.from_bytes(hashlib.blake2b(salt + text, digest_size=8).digest(), "little") >> 2
