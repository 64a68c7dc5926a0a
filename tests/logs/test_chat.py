from __future__ import annotations

import pytest

from kvgym.errors import WorkloadError
from kvgym.logs.forms.chat import last_answer, message_text, render, split
from kvgym.logs.rows import Row


def rows(*messages):
    return [Row(f"log, line 1, messages[{i}]", message) for i, message in enumerate(messages)]


CHAT = ({"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi"})


def test_render__marks_around_each_message_and_an_open_end():
    assert render(rows(*CHAT)) == (
        "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n"
    )


def test_render__a_later_prompt_starts_with_prompt_and_answer():
    later = render(rows(*CHAT, {"role": "assistant", "content": "Hello."}, {"role": "user", "content": "Bye"}))
    assert later.startswith(render(rows(*CHAT)) + "Hello.<|im_end|>\n")


def test_render__tools_come_first_in_the_order_of_the_log():
    """A server renders the keys as they come, so another order is another prompt."""
    one = render(rows(*CHAT), [{"name": "f", "args": 1}])
    assert one.startswith('<|im_start|>tools\n[{"name": "f", "args": 1}]<|im_end|>\n<|im_start|>system')
    assert one != render(rows(*CHAT), [{"args": 1, "name": "f"}])


def test_message_text__parts_and_tool_calls():
    image = {"type": "image_url", "image_url": {"url": "data:1"}}
    (message,) = rows({"role": "user", "content": [{"type": "text", "text": "what is "}, image]})
    assert message_text(message).startswith("what is <|image_url:")
    (other,) = rows(
        {"role": "user", "content": [{"type": "text", "text": "what is "}, {**image, "image_url": "data:2"}]}
    )
    assert message_text(message) != message_text(other)
    (call,) = rows({"role": "assistant", "content": None, "tool_calls": [{"id": "x", "function": {"name": "f"}}]})
    assert message_text(call) == '{"name": "f"}'


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        ({"content": "x"}, r"messages\[0\]: role must be a word such as .*, the field is missing"),
        ({"role": "a b", "content": "x"}, r"role must be a word such as .*, got 'a b'"),
        ({"role": "user", "content": 3}, "content must be text, a list of parts, or null, got 3"),
        ({"role": "user", "content": ["x"]}, r"content must be a list of objects \(entry 0 is none\)"),
    ],
)
def test_render__malformed(message, expected):
    with pytest.raises(WorkloadError, match=expected):
        render(rows(message))


def test_split__loses_nothing_and_isolates_the_marks():
    text = render(rows(*CHAT)) + "an answer"
    pieces = split(text)
    assert "".join(pieces) == text
    assert pieces[:3] == ["<|im_start|>system\n", "Be brief.", "<|im_end|>\n"]
    assert pieces[-2:] == ["<|im_start|>assistant\n", "an answer"]
    assert split("") == []


def test_last_answer__the_closed_one():
    pieces = split(render(rows(*CHAT, {"role": "assistant", "content": "Hello."}, {"role": "user", "content": "Bye"})))
    assert pieces[slice(*last_answer(pieces))] == ["Hello."]
    assert last_answer(split(render(rows(*CHAT)))) is None
    assert last_answer(split("plain text")) is None
