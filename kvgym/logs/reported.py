"""Lets lengths follow what the server reported where the logged text is not what the model saw or said.

Texts are counted, reports are true: a log may leave reasoning out, images have no text, a proxy may have replaced every
text by a marker. Where report and text differ by more than `FACTOR` (and `LEAST` tokens), the difference is filled up:

- an answer's with tokens before it that no later prompt repeats: hidden reasoning;
- a prompt's with tokens at its end that nobody shares: images, audio, what a template adds;
- a prompt whose text holds less than a tenth of what was reported, and in which nothing but text stands, is taken as
  withheld: all of it is tokens that nobody shares, since nothing is known of what it shares.

Reports below the text change nothing and are counted.
"""

from __future__ import annotations

import re
from typing import Any

import numpy as np

from kvgym.logs.entries import Entry

FACTOR, EXACT_FACTOR = 1.5, 1.05
"""Report over text beyond which the length follows the report: with kvgym's counter, and with the model's tokenizer."""
LEAST = 16
"""Smaller differences are left alone, tokens."""
WITHHELD = 10.0
"""Report over text beyond which the text is not taken for the prompt."""
_PART = re.compile(r"<\|\w+:[0-9a-f]{8}\|>")
"""What stands for an image, audio or any other part that is no text (see `forms.chat`)."""
_ID_BITS = 0x7FFFFFFF


class Lengths:
    """Compares reports with texts, and mends prompts and answers of a batch.

    Args:
        exact: the tokenizer is the model's.
    """

    def __init__(self, exact: bool) -> None:
        self._factor = EXACT_FACTOR if exact else FACTOR
        self._made = 0
        self._totals = np.zeros((2, 2), np.int64)  # prompts, answers: tokens reported, counted
        self._counts = dict.fromkeys(
            ("prompts_longer_as_reported", "prompts_withheld", "prompts_shorter_as_reported",
             "answers_longer_as_reported", "answers_shorter_as_reported", "filler_tokens"), 0
        )  # fmt: skip

    def follow(
        self,
        entries: list[Entry],
        prompts: list[tuple[np.ndarray, tuple[int, int]]],
        answers: list[list[np.ndarray]],
    ) -> None:
        """Mend the ids of prompts and of [thinking, answer] in place."""
        for at, entry in enumerate(entries):
            if entry.prompt_tokens and isinstance(entry.prompt, str):
                prompts[at] = self._prompt(entry.prompt_tokens, bool(_PART.search(entry.prompt)), *prompts[at])
            if entry.output_tokens and answers[at] and isinstance(entry.answer, str):
                self._answer(entry.output_tokens, answers[at])

    @property
    def facts(self) -> dict[str, Any]:
        """What was compared and mended."""
        return {
            "prompt_tokens_counted_per_reported": _ratio(*self._totals[0]),
            "answer_tokens_counted_per_reported": _ratio(*self._totals[1]),
            **self._counts,
        }

    def _prompt(
        self, reported: int, more_than_text: bool, ids: np.ndarray, place: tuple[int, int]
    ) -> tuple[np.ndarray, tuple[int, int]]:
        self._totals[0] += (reported, len(ids))
        if not self._apart(reported, len(ids)):
            return ids, place
        if reported < len(ids):
            self._counts["prompts_shorter_as_reported"] += 1
            return ids, place
        if reported > WITHHELD * len(ids) and not more_than_text:
            self._counts["prompts_withheld"] += 1
            return self._filler(reported), (-1, -1)
        self._counts["prompts_longer_as_reported"] += 1
        return np.concatenate((ids, self._filler(reported - len(ids)))), (-1, -1)

    def _answer(self, reported: int, parts: list[np.ndarray]) -> None:
        counted = sum(map(len, parts))
        self._totals[1] += (reported, counted)
        if not self._apart(reported, counted):
            return
        if reported < counted:
            self._counts["answers_shorter_as_reported"] += 1
            return
        self._counts["answers_longer_as_reported"] += 1
        parts[0] = np.concatenate((self._filler(reported - counted), parts[0]))

    def _apart(self, reported: int, counted: int) -> bool:
        return abs(reported - counted) >= LEAST and not 1 / self._factor <= reported / max(counted, 1) <= self._factor

    def _filler(self, count: int) -> np.ndarray:
        """Return so many ids that no other text has."""
        self._counts["filler_tokens"] += count
        self._made += 1
        ids = np.arange(count, dtype=np.int64) * 2_654_435_761 + self._made * 40_503 + 7
        return ids & _ID_BITS


def _ratio(reported: int, counted: int) -> float | None:
    return round(float(counted) / float(reported), 4) if reported else None
