from __future__ import annotations

import numpy as np

from kvgym.logs.pieces import PieceTokeniser
from kvgym.logs.tokens import FallbackTokeniser

PROMPT = "<|im_start|>user\nHi there.<|im_end|>\n<|im_start|>assistant\n"


class Counting(FallbackTokeniser):
    """Keeps what it was asked for."""

    def __init__(self):
        super().__init__()
        self.asked = []

    def __call__(self, texts):
        self.asked += texts
        return super().__call__(texts)


def test_call__an_answer_has_the_same_ids_alone_and_inside_a_later_prompt():
    tokenise = PieceTokeniser(FallbackTokeniser())
    answer = "\n  Hello you.\n"
    (prompt, none), (said, _), (later, where) = tokenise([PROMPT, answer, PROMPT + answer + "<|im_end|>\n" + PROMPT])
    assert np.array_equal(later[: len(prompt) + len(said)], np.concatenate((prompt, said)))
    assert none == (-1, -1)
    assert where == (len(prompt), len(prompt) + len(said))


def test_call__a_mark_is_one_token():
    ((ids, _),) = PieceTokeniser(FallbackTokeniser())([PROMPT])
    assert len(ids) == 3 + 3 + 2 + 3  # mark, role, line end | Hi, there, . | mark, line end | mark, role, line end


def test_call__repeated_pieces_are_tokenised_once():
    counting = Counting()
    tokenise = PieceTokeniser(counting)
    first = tokenise([PROMPT, PROMPT])
    again = tokenise([PROMPT + "new"])
    assert sorted(counting.asked) == sorted(
        ["<|im_start|>user\n", "Hi there.", "<|im_end|>\n", "<|im_start|>assistant\n", "new"]
    )
    assert np.array_equal(first[0][0], again[0][0][:-1])
    assert (tokenise.chars, tokenise.tokens) == (3 * len(PROMPT) + 3, 2 * 11 + 12)


def test_call__forgets_what_is_too_much(monkeypatch):
    monkeypatch.setattr("kvgym.logs.pieces._KEPT_TOKENS", 3 + 32 + 2)
    counting = Counting()
    tokenise = PieceTokeniser(counting)
    for text in ("a b c", "d e f", "d e f", "a b c"):
        ((ids, _),) = tokenise([text])
        assert np.array_equal(ids, FallbackTokeniser()([text])[0])
    assert counting.asked == ["a b c", "d e f", "a b c"]
