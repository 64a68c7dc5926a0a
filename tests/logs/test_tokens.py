from __future__ import annotations

import sys

import pytest

from kvgym.errors import MissingDependencyError, WorkloadError
from kvgym.logs.tokens import FallbackTokeniser, load_tokeniser


def test_fallback__pieces():
    text = "Hello, world 2024!\n\n  extraordinarily naïve 你好"
    (ids,) = FallbackTokeniser()([text])
    # Hello|,| world| |202|4|!\n\n| | extraordinar|ily| na|ï|ve| |你|好
    assert len(ids) == 16
    assert ids.min() >= 0
    assert ids[7] == ids[3]  # both are one space


def test_fallback__equal_beginnings_have_equal_ids():
    one, two, again = FallbackTokeniser()(["The quick brown fox.", "The quick brown dog.", "The quick brown fox."])
    assert one.tolist() == again.tolist()
    assert one[:3].tolist() == two[:3].tolist()
    assert one[3] != two[3]
    assert FallbackTokeniser()(["fox The quick"])[0][1] != one[0]  # the space belongs to the word


def test_fallback__half_a_surrogate_pair():
    assert len(FallbackTokeniser()(["a\ud83d"])[0]) == 2


def test_fallback__a_chat_mark_is_one_piece():
    assert len(FallbackTokeniser()(["<|im_start|>user"])[0]) == 2


def test_fallback__forgets_pieces_and_gives_the_same_ids(monkeypatch):
    monkeypatch.setattr("kvgym.logs.tokens._MOST_PIECES", 3)
    tokenise = FallbackTokeniser()
    first = tokenise(["a b c d e"])[0].tolist()
    assert tokenise(["a b c d e"])[0].tolist() == first


def test_load_tokeniser__a_hugging_face_file(tmp_path):
    tokenizers = pytest.importorskip("tokenizers", reason="the extra `data` is not installed")
    model = tokenizers.Tokenizer(tokenizers.models.WordLevel({"a": 0, "b": 1, "?": 2}, unk_token="?"))
    model.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    model.save(str(tmp_path / "tokenizer.json"))
    tokenise = load_tokeniser(str(tmp_path / "tokenizer.json"))
    assert [ids.tolist() for ids in tokenise(["a b b", "z\ud83d", ""])] == [[0, 1, 1], [2, 2], []]
    (tmp_path / "other.json").write_text("{}")
    with pytest.raises(WorkloadError, match=r"other.json is no tokenizer.json"):
        load_tokeniser(str(tmp_path / "other.json"))


def test_load_tokeniser__names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "tokenizers", None)
    with pytest.raises(MissingDependencyError, match=r"pip install 'kvgym\[data\]'"):
        load_tokeniser("tokenizer.json")
