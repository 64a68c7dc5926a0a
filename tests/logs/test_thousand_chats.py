"""A log of 1,000 hand-made chats in every form that is read, against what is known of it without any code of kvgym."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta, timezone

import numpy as np
import pytest

from kvgym.workloads.imported import Imported

REQUESTS = 1000
UNTOLD = 128
"""Length of an answer that nobody knows, by the default of the source `imported`."""
START_S = 1_700_000_000
TOOL_CALL = {"type": "function", "function": {"name": "look"}}
TOOL_TOKENS = ['{"', "name", '":', ' "', "look", '"}']
"""Tokens of the call as the rendering writes it, counted by the rules in `kvgym.logs.tokens`."""
WORDS = {
    "alpha": [" alpha"],
    "beta": [" beta"],
    "gamma": [" gamma"],
    "naïve": [" na", "ï", "ve"],
    "你好": [" ", "你", "好"],
    "(so)": [" (", "so", ")"],
    "😀": [" 😀"],
    "delta.": [" delta", "."],
}
"""Words, and the tokens of each after a space."""


@dataclass
class Text:
    """A text that knows its tokens."""

    words: list[str]

    def __str__(self) -> str:
        return " ".join(self.words)

    @property
    def tokens(self) -> list[str]:
        tokens = [token for word in self.words for token in WORDS.get(word, [" " + word])]
        return [token for token in (tokens[0].lstrip(" "), *tokens[1:]) if token]


@dataclass
class Said:
    """A message: its fields in the log, its rendered text, its tokens."""

    fields: dict
    text: str
    tokens: list[str]

    @property
    def rendered(self) -> str:
        return f"<|im_start|>{self.fields['role']}\n{self.text}<|im_end|>\n"

    @property
    def all_tokens(self) -> list[str]:
        return ["<|im_start|>", self.fields["role"], "\n", *self.tokens, "<|im_end|>", "\n"]


@dataclass
class Expected:
    """What must come out for one request."""

    conversation: int
    turn: int
    time_s: float
    prompt: list[str]
    answer: list[str] | None  # None: nowhere to be found
    row: dict = field(default_factory=dict)


class Author:
    """Writes conversations under a few system prompts, interleaved, at increasing times."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        self.systems = [self.say("system", self.text(12)) for _ in range(4)]
        self.log: list[Expected] = []
        self.conversations = 0

    def text(self, count: int) -> Text:
        return Text([str(word) for word in self.rng.choice(list(WORDS), count)])

    def say(self, role: str, text: Text) -> Said:
        """Return a message; its content is text or, sometimes, a list of parts."""
        content: object = str(text)
        if role == "user" and self.rng.random() < 0.2:
            cut = len(str(text)) // 2
            content = [{"type": "text", "text": str(text)[:cut]}, {"type": "text", "text": str(text)[cut:]}]
        return Said({"role": role, "content": content}, str(text), text.tokens)

    def write(self) -> None:
        going: list[list] = []  # conversation, turn, messages so far
        while len(self.log) < REQUESTS:
            if going and self.rng.random() < 0.6:
                number, turn, said = going.pop(self.rng.integers(len(going)))
            else:
                number, turn, said = self.conversations, 0, [self.systems[self.rng.integers(4)]]
                self.conversations += 1
            said = [*said, self.ask(number, said[-1])]
            reply = self.reply()
            goes_on = self.rng.random() < 0.75
            self.log.append(self.entry(number, turn, said, reply, goes_on))
            if goes_on:
                going.append([number, turn + 1, [*said, reply]])
        for number, turn, *_ in going:  # their last answer is repeated by no later prompt
            for entry in self.log:
                if (entry.conversation, entry.turn + 1) == (number, turn) and not _tells_answer(entry.row):
                    entry.answer = None

    def ask(self, number: int, last: Said) -> Said:
        """Return what a tool says to a call, else the user's next words."""
        if "tool_calls" in last.fields:
            return self.say("tool", self.text(3))
        name = "q" + "".join("abcdefghij"[int(digit)] for digit in str(number))  # tells conversations apart
        return self.say("user", Text([name, *self.text(int(self.rng.integers(1, 8))).words]))

    def reply(self) -> Said:
        """Return an answer: mostly words, sometimes the call of a tool."""
        if self.rng.random() < 0.15:
            fields = {"role": "assistant", "content": None, "tool_calls": [TOOL_CALL]}
            return Said(fields, json.dumps({"name": "look"}), TOOL_TOKENS)
        return self.say("assistant", self.text(int(self.rng.integers(1, 15))))

    def entry(self, number: int, turn: int, said: list[Said], reply: Said, goes_on: bool) -> Expected:
        """Return one row of the log and what it means."""
        tokens = [token for message in said for token in message.all_tokens] + ["<|im_start|>", "assistant", "\n"]
        time_s = START_S + 2.0 * len(self.log)
        expected = Expected(number, turn, time_s, tokens, reply.tokens)
        silent = self.rng.random() < 0.2
        if silent and not goes_on:
            expected.answer = None
        request: dict = {"messages": [message.fields for message in said]}
        chat = self.rng.random() < 0.7
        if not chat:
            request = {"prompt": "".join(message.rendered for message in said) + "<|im_start|>assistant\n"}
        answer = {"message": reply.fields} if chat else {"text": reply.text}
        response = {"choices": [answer]}
        form = self.rng.integers(4)
        if form == 0:
            row = {**request, **({} if silent else response)}
        elif form == 1:
            row = {"request": request, **({} if silent else {"response": response})}
        elif form == 2:
            row = {"body": request, **({} if silent else {"response": {"body": response}})}
        else:
            row = {**request, **({} if silent else {"output": reply.text})}
        name, value = self.stamp(time_s)
        expected.row = {name: value, **row}
        return expected

    def stamp(self, time_s: float) -> tuple[str, object]:
        """Return the arrival as one of the forms that logs use."""
        date = datetime.fromtimestamp(time_s, UTC)
        east = date.astimezone(timezone(timedelta(hours=5, minutes=30)))
        forms: list[tuple[str, object]] = [
            ("timestamp", time_s),
            ("created", int(time_s)),
            ("timestamp", int(time_s * 1000)),
            ("timestamp_ms", time_s * 1000),
            ("start_time", int(time_s * 1_000_000)),
            ("created_at", date.isoformat().replace("+00:00", "Z")),
            ("time", east.isoformat()),
            ("request_time", date.replace(tzinfo=None).isoformat()),
        ]
        return forms[self.rng.integers(len(forms))]


def _tells_answer(row: dict) -> bool:
    return any(name in row for name in ("choices", "response", "output"))


def known_prefixes(log: list[Expected]) -> list[int]:
    """Return how many tokens of each prompt began an earlier prompt, with its answer where that is known."""
    root: dict = {}
    shared = []
    for entry in log:
        node, depth = root, 0
        while depth < len(entry.prompt) and entry.prompt[depth] in node:
            node, depth = node[entry.prompt[depth]], depth + 1
        shared.append(depth)
        node = root
        for token in [*entry.prompt, *(entry.answer or [])]:
            node = node.setdefault(token, {})
    return shared


@pytest.fixture(scope="module")
def log() -> list[Expected]:
    author = Author(seed=7)
    author.write()
    return author.log


@pytest.fixture
def imported(log, kvgym, tmp_path):
    """(facts, workload) of the log after `kvgym import`."""
    text = "".join(json.dumps(entry.row, ensure_ascii=i % 2 == 0) + "\n" for i, entry in enumerate(log))
    (tmp_path / "chats.jsonl").write_text(text, encoding="utf-8")
    code, out, err = kvgym("import", "chats.jsonl", "--json")
    assert (code, err) == (0, "")
    return json.loads(out), Imported(str(tmp_path / "chats.kvgw")).generate(0)


def test_log__has_all_that_it_should(log):
    assert len(log) == REQUESTS
    assert sum("prompt" in json.dumps(entry.row) for entry in log) > 200, "completion form"
    text = json.dumps([entry.row for entry in log], ensure_ascii=False)
    assert min(text.count(part) for part in ('"tool"', "tool_calls", '"type": "text"', "你好", "😀", "1700")) > 20
    assert sum(entry.answer is None for entry in log) > 20
    assert sum(not _tells_answer(entry.row) and entry.answer is not None for entry in log) > 20
    assert max(entry.turn for entry in log) >= 5


def test_import__lengths_times_and_conversations(log, imported):
    facts, workload = imported
    requests = workload.requests
    assert (facts["requests"], facts["sessions"]) == (REQUESTS, len({entry.conversation for entry in log}))
    assert facts["answers_unknown"] == sum(entry.answer is None for entry in log)
    told = [_tells_answer(entry.row) for entry in log]
    repeated = sum(entry.answer is not None and not tells for entry, tells in zip(log, told, strict=True))
    assert facts["answers_from_the_next_prompt"] == repeated
    assert facts["prompt_tokens"] == sum(len(entry.prompt) for entry in log)
    assert requests["prompt_tokens"].tolist() == [len(entry.prompt) for entry in log]
    assert requests["output_tokens"].tolist() == [UNTOLD if e.answer is None else len(e.answer) for e in log]
    order = list(dict.fromkeys(entry.conversation for entry in log))
    assert requests["session"].tolist() == [order.index(entry.conversation) for entry in log]
    assert requests["turn"].tolist() == [entry.turn for entry in log]
    # the log has no latencies, so all turns come at their recorded times
    assert requests["arrival_s"] == pytest.approx([entry.time_s - START_S for entry in log], abs=1e-3)


def test_import__prompts_share_what_their_texts_share(log, imported):
    _, workload = imported
    forest, requests = workload.forest, workload.requests
    seen: set[int] = {0}
    shared = []
    for entry, request in zip(log, requests, strict=True):
        path = forest.path(int(request["prompt_node"])).tolist()
        assert forest.nodes["end"][path[-1]] == len(entry.prompt)
        shared.append(max(int(forest.nodes["end"][node]) for node in [0, *path] if node in seen))
        seen.update(path)
        if entry.answer is not None:
            answer = forest.path(int(request["output_node"])).tolist()
            assert answer[: len(path)] == path
            assert forest.nodes["end"][answer[-1]] == len(entry.prompt) + len(entry.answer)
            seen.update(answer)
    assert shared == known_prefixes(log)


def test_run__routes_them(imported, kvgym):
    code, out, _ = kvgym(
        "run", "--workload", "chats.kvgw", "--routing", "round_robin", "--set", "cluster.page_size=16", "--json"
    )
    last = json.loads(out)
    assert (code, last["completed"], last["rejected"], last["failed"]) == (0, REQUESTS, 0, 0)
    assert 0.2 < last["hit_rate"] < 0.9
    code, out, _ = kvgym(
        "run", "--workload", "chats.kvgw", "--set", "workload.rate_rps=5", "--set", "workload.limit=100", "--json"
    )
    assert (code, json.loads(out)["completed"]) == (0, 100)
