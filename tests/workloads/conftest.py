"""Hand-made chats with what is true about them, for the tests of imports."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

WORDS = ("alpha", "beta", "gamma", "delta", "one", "two", "naïve", "你好", "x1", "(so)")


@dataclass
class Chats:
    """Rows in the order of their arrival, and for each the conversation that it belongs to."""

    rows: list[dict]
    conversation: list[int]

    def write(self, file: Path, change=lambda row: row) -> str:
        """Write the rows, each passed through `change`, as JSON lines."""
        file.write_text("".join(json.dumps(change(row)) + "\n" for row in self.rows), encoding="utf-8")
        return str(file)


def _chats(requests: int, seed: int = 0) -> Chats:
    """Return interleaved conversations under one of three system prompts; every answer is logged."""
    rng = np.random.default_rng(seed)

    def text(count: int) -> str:
        return " ".join(rng.choice(WORDS, count)) + "."

    systems = [f"You are {text(20)}" for _ in range(3)]
    rows, conversation, going, time_s, started = [], [], [], 1_700_000_000.0, 0
    while len(rows) < requests:
        time_s += float(rng.exponential(0.5))
        if going and rng.random() < 0.6:
            number, said, free_s = going.pop(rng.integers(len(going)))
            time_s = max(time_s, free_s + 0.1)
        else:
            number, said = started, [{"role": "system", "content": systems[rng.integers(3)]}]
            started += 1
        # the number makes every first question another one, so that a conversation is told by its text
        said = [*said, {"role": "user", "content": f"{number} {text(int(rng.integers(3, 12)))}"}]
        answer = text(int(rng.integers(2, 25)))
        message = {"role": "assistant", "content": answer}
        rows.append({"timestamp": time_s, "latency_s": 0.4, "messages": said, "choices": [{"message": message}]})
        conversation.append(number)
        if rng.random() < 0.75:
            going.append((number, [*said, message], time_s + 0.4))
    return Chats(rows, conversation)


@pytest.fixture
def make_chats():
    """Maker of chats: (number of requests, seed)."""
    return _chats
