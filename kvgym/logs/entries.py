"""A log row becomes a request: prompt, answer, counts, times and whose conversation it belongs to."""

from __future__ import annotations

import difflib
import json
import re
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from kvgym.errors import WorkloadError
from kvgym.logs import fields
from kvgym.logs.forms import apis
from kvgym.logs.forms.chat import message_text, render, thinking_text
from kvgym.logs.rows import Row

PROMPTS = ("input_ids", "messages", "prompt", "text", "input")
"""Fields that may be the prompt, the preferred first: token ids, chat messages, text, what the Responses API takes."""
REQUESTS = ("request", "body", "obj", "request_parameters", "input")
"""Objects of a row that may hold the request; else the row itself does."""
RESPONSES = ("response", "out", "output", "completion")
"""Objects of a row that may hold the answer; else the row itself does."""
ANSWERS = (
    "output",
    "output_text",
    "response",
    "response_text",
    "completion",
    "completion_text",
    "generated_text",
    "answer",
)
"""Fields of a row that may be the answer's text."""
SESSIONS = ("session_id", "conversation_id", "chat_id", "thread_id", "session")
"""Names of a conversation: its requests follow each other."""
OWNERS = ("user_id", "user")
"""Names of who asks: a conversation that is inferred has one owner."""
TENANTS = ("tenant_id", "tenant", *OWNERS)
"""Names of who the request is counted for; without a tenant that is who asks."""

_LIMITS = ("max_completion_tokens", "max_tokens", "max_output_tokens", "max_new_tokens")
_THOUGHT = re.compile(r"\s*<think>.*?</think>\s*", re.DOTALL)
_MOST_ID = 2**31 - 1
_WHOLE = "whole, but SGLang's --log-requests-level 2 cuts it; log at level 3"
_LONG_CUT, _CUT_AT = 2051, 1024  # a text of 2,048 characters or more at SGLang's log level 2: two halves and "..."


@dataclass
class Entry:
    """One request as logged; what is not known is None."""

    where: str
    prompt: str | np.ndarray  # text, or token ids (int64)
    answer: str | np.ndarray | None = None  # what a later prompt would repeat
    thinking: str = ""  # generated before the answer, not repeated in later prompts
    prompt_tokens: int | None = None  # as the server counted them
    output_tokens: int | None = None
    time_s: float | None = None  # arrival, from any origin
    latency_s: float | None = None  # from arrival to the end of the answer
    session: str = ""
    owner: str = ""
    tenant: str = ""
    max_new_tokens: int = 0
    priority: int = 0
    misfits: dict[str, WorkloadError] = field(default_factory=dict)  # what needs a repair: kind -> what is wrong
    left_out: str = ""  # why the request is not one that was served: failed, cancelled, empty
    clock: str = ""  # field and unit that the arrival was read from
    latency_field: str = ""
    unread: tuple[str, ...] = ()  # fields of the row, its request and its response that nobody has read


def read_request(row: Row) -> Entry:
    """Return what a live request asks for: its prompt, who sent it, how much; the row is the request's body itself.

    Raises:
        WorkloadError: a field is malformed or there is no prompt.
    """
    if fields.find([row], PROMPTS) is None:
        _request(row)  # says what is missing
    return _asked(row, row, [row], row)


def _asked(row: Row, request: Row, places: list[Row], response: Row) -> Entry:
    """Return prompt, names and limits of a request that stands in these places."""
    names = [*places, *filter(None, (fields.nested(place, ("metadata",)) for place in places[:2]))]
    session = fields.label(names, SESSIONS)
    if not session and (params := fields.nested(request, ("session_params",))):
        session = fields.label([params], ("id",))
    limits = filter(None, (request, fields.nested(request, ("sampling_params",))))
    return Entry(
        row.where,
        _prompt(request, response),
        session=session,
        owner=fields.label(names, OWNERS),
        tenant=fields.label(names, TENANTS),
        max_new_tokens=fields.count(limits, _LIMITS) or 0,
        priority=_priority(request),
    )


def read_entry(row: Row) -> Entry:
    """Return the request in an OpenAI-style row.

    Raises:
        WorkloadError: a field is malformed or there is no prompt.
    """
    request = _request(row)
    outer = fields.nested(row, RESPONSES) or row
    response = fields.nested(outer, ("body",)) or outer
    places = [row, *(place for place in (request, response) if place is not row)]
    entry = _asked(row, request, places, response)
    entry.time_s, entry.clock = fields.clock(places) or (None, "")
    timed = fields.find(places, fields.LATENCIES)
    entry.latency_s, entry.latency_field = fields.latency(places, entry.time_s), timed[1] if timed else ""
    entry.left_out, entry.unread = apis.failure([outer, *places]), _unread(places)
    usage = fields.nested(response, ("usage", "meta_info")) or fields.nested(row, ("usage",)) or row
    entry.prompt_tokens, entry.output_tokens = apis.prompt_tokens(usage), apis.output_tokens(usage)
    _read_answer(entry, row, response)
    _check_counts(entry, row)
    return entry


def read_finished(row: Row) -> Entry:
    """Return the request in a row that SGLang wrote when the request had finished.

    It arrived at ``request_received_ts``, or (older releases) the row's ``timestamp`` less its ``e2e_latency``.
    """
    entry = read_entry(row)
    out = fields.nested(row, ("out",)) or row
    meta = fields.nested(out, ("meta_info",)) or row
    entry.latency_s = fields.latency([meta], None)
    received_s = fields.stamp([meta], ("request_received_ts",))
    if received_s is not None:
        entry.time_s = received_s
    elif entry.time_s is not None:
        entry.time_s = max(entry.time_s - (entry.latency_s or 0.0), 0.0)
    return entry


_READ = frozenset(
    {*PROMPTS, *REQUESTS, *RESPONSES, *ANSWERS, *SESSIONS, *OWNERS, *TENANTS, *_LIMITS, *fields.STAMPS, *fields.ENDS}
    | {*fields.LATENCIES, *apis.READ, "body", "metadata", "choices", "usage", "meta_info", "tools", "system", "content"}
    | {"instructions", "priority", "sampling_params", "session_params", "output_ids", "event", "rid", "finish_reason"}
)
"""Names of fields that are read somewhere; all others are counted for the import's report."""


def _unread(places: list[Row]) -> tuple[str, ...]:
    return tuple(
        {name for place in places for name, value in place.data.items() if name not in _READ and value is not None}
    )


def _request(row: Row) -> Row:
    """Return the object that holds the prompt."""
    candidates = [row]
    for name in REQUESTS:
        value = row.data.get(name)
        if isinstance(value, str) and (name == "request_parameters" or value.lstrip()[:1] == "{"):
            value = _decoded(row, name, value)
        if isinstance(value, dict):
            inner = Row(f"{row.where}, {name}", value)
            candidates += filter(None, (inner, fields.nested(inner, ("body",))))
    if found := fields.find(candidates, PROMPTS):
        return found[0]
    keys = [key for candidate in candidates for key in candidate.data]
    near = [
        (key, *difflib.get_close_matches(key, (*PROMPTS, *REQUESTS, "conversations"), n=1, cutoff=0.75))
        for key in keys
        if key not in PROMPTS and key not in REQUESTS
    ]
    hint = next((f"; did you mean {pair[1]!r} for {pair[0]!r}?" for pair in near if len(pair) == 2), "")
    if "input_length" in row.data:
        hint = "; this is a trace of lengths: --format mooncake reads it"
    if {"obj", "request_parameters"} & set(row.data):
        hint = "; SGLang logs prompts at --log-requests-level 3"
    raise WorkloadError(
        f"{row.where}: expected a prompt in one of the fields {', '.join(PROMPTS)}, "
        f"got {', '.join(keys[:12]) or 'an empty object'}{hint}"
    )


def _decoded(row: Row, name: str, text: str) -> Any:
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        raise row.error(name, f"a JSON object as text ({error.msg} at column {error.colno})") from error


def _prompt(request: Row, response: Row) -> str | np.ndarray:
    """Return the prompt as text or token ids."""
    _, name = fields.find([request], PROMPTS) or (request, PROMPTS[0])
    value = request.data[name]
    if name == "input" and apis.is_chat(request, response):
        return render(apis.input_messages(request), request.data.get("tools"))
    if isinstance(value, list) and len(value) == 1 and isinstance(value[0], str | list):
        request = Row(request.where, {name: value[0]})  # a batch of one
        value = value[0]
    if name == "messages" and value != []:
        return render([*apis.system_message(request), *request.nested(name)], request.data.get("tools"))
    if not value and isinstance(value, str | list):
        raise request.error(name, "a prompt that is not empty")
    if not isinstance(value, str):
        return _ids(request, name)
    return _uncut(request, name, value)


def _uncut(row: Row, name: str, text: str) -> str:
    if len(text) == _LONG_CUT and text[_CUT_AT : _CUT_AT + 3] == "...":
        raise row.error(name, _WHOLE)
    return text


def _ids(row: Row, name: str) -> np.ndarray:
    """Return token ids, int64."""
    value = row.data[name]
    if isinstance(value, list) and "..." in value:
        raise row.error(name, _WHOLE)
    if isinstance(value, list) and value and all(isinstance(item, str | list) for item in value):
        raise row.error(name, "one prompt (a batch has to be written as one row per prompt)")
    if isinstance(value, list) and set(map(type, value)) <= {int}:
        try:
            ids = np.array(value, np.int64)
        except OverflowError:
            ids = np.array([-1])
        if not len(ids) or (ids.min() >= 0 and ids.max() <= _MOST_ID):
            return ids
    raise row.error(name, f"a list of token ids in 0..{_MOST_ID}, or text")


def _priority(request: Row) -> int:
    value = request.data.get("priority")
    if value is not None and (type(value) is not int or abs(value) > _MOST_ID):
        raise request.error("priority", "a whole number")
    return value or 0


def _read_answer(entry: Entry, row: Row, response: Row) -> None:
    """Fill in the answer and what was thought before it."""
    if isinstance(response.data.get("choices"), list):
        choices = list(response.nested("choices"))
        if len(choices) > 1:
            entry.output_tokens = None  # the count is that of all choices together
        for choice in choices[:1]:
            message = fields.nested(choice, ("message",))
            if message is None:
                entry.answer = _text(choice, "text")
            else:
                _read_message(entry, message)
    elif (message := apis.answer_message(response)) is not None:
        _read_message(entry, message)
    elif response.data.get("output_ids") and (isinstance(entry.prompt, np.ndarray) or "text" not in response.data):
        entry.answer = _ids(response, "output_ids")
    elif response is not row and "text" in response.data:
        entry.answer = _text(response, "text")
    elif found := fields.find([row], ANSWERS):
        entry.answer = _text(*found) if not isinstance(row.data[found[1]], dict) else None
    if isinstance(entry.answer, str) and not entry.thinking and (match := _THOUGHT.match(entry.answer)):
        # reasoning models write it so, and servers leave it out of the next prompt
        entry.thinking, entry.answer = match.group(), entry.answer[match.end() :]


def _read_message(entry: Entry, message: Row) -> None:
    entry.answer = message_text(message)
    thinking = thinking_text(message)
    entry.thinking = f"<think>\n{thinking}\n</think>\n\n" if thinking else ""


def _text(row: Row, name: str) -> str | None:
    value = row.data.get(name)
    if not isinstance(value, str | None):
        raise row.error(name, "text")
    return None if value is None else _uncut(row, name, value)


def _check_counts(entry: Entry, row: Row) -> None:
    """Note what does not fit: an answer of no tokens, token ids that are not as many as the log says."""
    if not entry.left_out and entry.output_tokens == 0 and not entry.answer:
        entry.left_out = "empty"
    empty = entry.answer is not None and len(entry.answer) == 0
    if empty and not entry.thinking:
        entry.answer = None
    if entry.output_tokens == 0 or (empty and entry.answer is None and entry.output_tokens is None):
        entry.misfits["empty_answers"] = WorkloadError(f"{row.where}: the answer must have at least 1 token, got 0")
    ids = entry.prompt
    if isinstance(ids, np.ndarray) and entry.prompt_tokens not in (None, len(ids)):
        entry.misfits["id_counts"] = WorkloadError(
            f"{row.where}: the prompt has {len(ids)} token ids but prompt_tokens is {entry.prompt_tokens}"
        )
