from __future__ import annotations

import json

import numpy as np
import pytest

from kvgym.errors import WorkloadError
from kvgym.logs.entries import read_entry, read_finished
from kvgym.logs.rows import Row

CHAT = [{"role": "user", "content": "Hi"}]
ANSWER = {"choices": [{"message": {"role": "assistant", "content": "Hello."}}], "usage": {"completion_tokens": 9}}


def entry(**data):
    return read_entry(Row("log.jsonl, line 3", data))


@pytest.mark.parametrize(
    "data",
    [
        {"messages": CHAT, **ANSWER},
        {"messages": CHAT, "response": ANSWER},
        {"request": {"messages": CHAT}, "response": ANSWER},
        {"custom_id": "x", "body": {"messages": CHAT}, "response": {"status_code": 200, "body": ANSWER}},
        {"messages": CHAT, "output": "Hello.", "usage": {"completion_tokens": 9}},
        {"prompt": "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n", "completion": "Hello.",
         "completion_tokens": 9},
    ],
)  # fmt: skip
def test_read_entry__one_request_in_many_styles(data):
    made = entry(**data)
    assert made.prompt == "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n"
    assert (made.answer, made.output_tokens, made.misfits) == ("Hello.", 9, {})


def test_read_entry__who_when_and_how_long():
    made = entry(
        request={"prompt": "p", "max_tokens": 50, "user": "u", "priority": 2},
        metadata={"conversation_id": 17},
        timestamp="1970-01-01T00:00:10Z",
        latency_ms=500,
    )
    assert (made.session, made.owner, made.time_s, made.latency_s) == ("17", "u", 10.0, 0.5)
    assert made.tenant == "u"
    assert (made.max_new_tokens, made.priority, made.answer, made.output_tokens) == (50, 2, None, None)


def test_read_entry__token_ids_are_preferred_and_batches_of_one_are_opened():
    made = entry(text="decoded", input_ids=[[5, 6, 7]], out={"output_ids": [8, 9], "text": "x"})
    assert made.prompt.tolist() == [5, 6, 7]
    assert made.answer.tolist() == [8, 9]
    assert entry(prompt=["one"]).prompt == "one"
    assert entry(text="p", out={"output_ids": [8], "text": "x"}).answer == "x"


def test_read_entry__reasoning_is_not_what_a_later_prompt_repeats():
    made = entry(messages=CHAT, choices=[{"message": {"content": "Hello.", "reasoning_content": "hm"}}])
    assert (made.thinking, made.answer) == ("<think>\nhm\n</think>\n\n", "Hello.")


def test_read_entry__several_choices_have_no_count_of_their_own():
    made = entry(prompt="p", choices=[{"text": "a"}, {"text": "b"}], usage={"completion_tokens": 2})
    assert (made.answer, made.output_tokens) == ("a", None)


@pytest.mark.parametrize(
    ("data", "kind", "message"),
    [
        ({"prompt": "p", "output": ""}, "empty_answers", "line 3: the answer must have at least 1 token, got 0"),
        ({"prompt": "p", "usage": {"completion_tokens": 0}}, "empty_answers", "at least 1 token, got 0"),
        ({"input_ids": [1, 2], "usage": {"prompt_tokens": 3}}, "id_counts", "2 token ids but prompt_tokens is 3"),
    ],
)
def test_read_entry__what_needs_a_repair(data, kind, message):
    assert message in str(entry(**data).misfits[kind])


def test_read_entry__an_answer_that_is_only_counted_is_no_empty_one():
    made = entry(messages=CHAT, choices=[{"message": {"content": ""}}], usage={"completion_tokens": 4})
    assert (made.answer, made.output_tokens, made.misfits) == (None, 4, {})


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ({"mesages": CHAT, "model": "m"}, "got mesages, model; did you mean 'messages' for 'mesages'?"),
        ({}, "expected a prompt in one of the fields input_ids, messages, prompt, text, input, got an empty object"),
        ({"obj": {"rid": "1"}}, "SGLang logs prompts at --log-requests-level 3"),
        ({"messages": "Hi"}, "messages must be a list, got 'Hi'"),
        ({"messages": []}, "messages must be a prompt that is not empty"),
        ({"prompt": ["a", "b"]}, "prompt must be one prompt (a batch has to be written as one row per prompt)"),
        ({"prompt": ""}, "prompt must be a prompt that is not empty"),
        ({"input_ids": []}, "input_ids must be a prompt that is not empty"),
        ({"input_ids": [1, -2]}, "input_ids must be a list of token ids in 0..2147483647, or text, got [1, -2]"),
        ({"input_ids": [1, "...", 3]}, "--log-requests-level 2 cuts it; log at level 3"),
        ({"text": "a" * 1024 + "..." + "b" * 1024}, "--log-requests-level 2 cuts it; log at level 3"),
        (
            {"obj": {"text": "p"}, "out": {"text": "a" * 1024 + "..." + "b" * 1024}},
            "out: text must be whole, but SGLang",
        ),
        ({"prompt": "p", "output": ["x"]}, "output must be text, got ['x']"),
        ({"prompt": "p", "usage": {"prompt_tokens": -1}}, "usage: prompt_tokens must be a whole number of tokens >= 0"),
        ({"prompt": "p", "max_tokens": 1.5}, "max_tokens must be a whole number of tokens >= 0, got 1.5"),
        ({"prompt": "p", "priority": "high"}, "priority must be a whole number, got 'high'"),
        ({"request_parameters": "{"}, "request_parameters must be a JSON object as text"),
    ],
)
def test_read_entry__malformed(data, message):
    with pytest.raises(WorkloadError) as caught:
        entry(**data)
    assert str(caught.value).startswith("log.jsonl, line 3")
    assert message in str(caught.value)


def test_read_finished__arrival_of_old_and_new_releases():
    obj = {"rid": "1", "text": "p", "sampling_params": {"max_new_tokens": 7}, "session_params": {"id": "s"}}
    meta = {"prompt_tokens": 1, "completion_tokens": 2, "e2e_latency": 1.5}
    data = {"timestamp": "1970-01-01T00:01:00", "event": "request.finished", "obj": obj}
    old = read_finished(Row("log", {**data, "out": {"text": "a b", "meta_info": meta}}))
    assert (old.time_s, old.latency_s, old.max_new_tokens, old.session, old.answer) == (58.5, 1.5, 7, "s", "a b")
    new = read_finished(Row("log", {**data, "out": {"text": "", "meta_info": {**meta, "request_received_ts": 58.0}}}))
    assert (new.time_s, new.output_tokens, new.answer) == (58.0, 2, None)


def test_read_finished__exported_metrics():
    parameters = json.dumps({"input_ids": [1, 2, 3], "text": None})
    data = {"request_parameters": parameters, "prompt_tokens": 3, "completion_tokens": 4, "request_received_ts": 9.0}
    made = read_finished(Row("log", {**data, "e2e_latency": 2.0}))
    assert np.array_equal(made.prompt, [1, 2, 3])
    assert (made.time_s, made.latency_s, made.output_tokens, made.misfits) == (9.0, 2.0, 4, {})


def test_read_entry__a_tenant_counts_before_a_user():
    made = entry(prompt="p", user="u", metadata={"tenant_id": 5})
    assert (made.owner, made.tenant) == ("u", "5")
    with pytest.raises(WorkloadError, match="tenant must be text or a whole number"):
        entry(prompt="p", tenant=[1])
