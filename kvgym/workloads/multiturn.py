"""Generated chat: conversations whose every prompt repeats the turns before it, as in SGLang's multi-turn benchmark."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from kvgym.config.options import check_options, option
from kvgym.errors import WorkloadError
from kvgym.forest.forest import MOST_TOKENS, Forest
from kvgym.seeding import stream
from kvgym.types import REQUEST
from kvgym.workloads.base import MOST_REQUESTS, Workload
from kvgym.workloads.building.arrivals import check_rate, open_loop
from kvgym.workloads.building.sessions import make_workload


@dataclass(frozen=True)
class MultiTurn:
    """Conversation c has ``turns[c mod len(turns)]`` turns; each adds a message and, behind it, the answer.

    The LBGR paper cuts or pads every message of ShareGPT and UltraChat to 1,024 tokens, so that of the text nothing is
    left but this shape (paper.md 6.2; defaults are its README settings). Its client may send one turn several times,
    which is not repeated here: a conversation has one turn under way. Their order depends on the seed.
    """

    conversations: int = option(128, "number of conversations", low=1)
    turns: tuple[int, ...] = option((2, 4, 6, 8), "turns, dealt to the conversations in turn", low=1, high=10_000)
    system_tokens: int = option(0, "prefix that all conversations share", "tokens", low=0, high=MOST_TOKENS)
    message_tokens: int = option(1024, "length of each message", "tokens", low=1, high=MOST_TOKENS)
    output_tokens: int = option(4, "generated tokens per turn", "tokens", low=1, high=MOST_TOKENS)
    clients: int = option(128, "closed-loop clients, each with one conversation; 0: open loop", low=0)
    rate_rps: float | None = option(None, "conversation starts per second in the open loop; null: all at once", "1/s")
    cv: float = option(1.0, "coefficient of variation of the gaps; 1: Poisson")
    think_s: float = option(0.0, "time between an answer and the next message", "s", low=0)

    def __post_init__(self) -> None:
        check_options(self, WorkloadError)
        check_rate(self.rate_rps, self.cv)
        if not self.turns:
            raise WorkloadError("multiturn: turns must name at least one number of turns, as in [2, 4, 6, 8], got []")
        if self.conversations * max(self.turns) > MOST_REQUESTS:
            raise WorkloadError(
                f"multiturn: at most {MOST_REQUESTS:,} requests are possible, got {self.conversations} conversations "
                f"of up to {max(self.turns)} turns"
            )
        longest = self.system_tokens + max(self.turns) * (self.message_tokens + self.output_tokens)
        if longest > MOST_TOKENS:
            raise WorkloadError(f"multiturn: a conversation may have {MOST_TOKENS:,} tokens, got up to {longest:,}")

    def generate(self, seed: int, page_size: int = 1) -> Workload:
        """Return the conversations in the order of `seed`, compiled for `page_size`."""
        dealt = np.array(self.turns, np.int64)[np.arange(self.conversations) % len(self.turns)]
        turns = stream(seed, "workload").permutation(dealt)
        session = np.repeat(np.arange(self.conversations), turns)
        turn = np.arange(len(session)) - np.repeat(np.cumsum(turns) - turns, turns)
        requests = np.zeros(len(session), REQUEST)
        requests["session"], requests["think_s"] = session, self.think_s
        requests["prompt_tokens"] = self.system_tokens + turn * self.output_tokens + (turn + 1) * self.message_tokens
        requests["output_tokens"] = self.output_tokens
        if not self.clients:
            starts = open_loop(self.conversations, self.rate_rps, self.cv, stream(seed, "arrivals"))
            requests["arrival_s"] = starts[session]
        forest = self._grow(requests, session, turn)
        requests["prompt_chars"] = forest.nodes["chars_end"][requests["prompt_node"]]
        forest, node_map = forest.paged(page_size)
        for name in ("prompt_node", "output_node"):
            requests[name] = node_map[requests[name]]
        notes = {"source": "generated multi-turn chat", "seed": seed, "sessions": self.conversations}
        return make_workload("multiturn", forest, requests, clients=self.clients, notes=notes)

    def _grow(self, requests: np.ndarray, session: np.ndarray, turn: np.ndarray) -> Forest:
        """Return the forest of all turns and fill in the nodes of `requests`, turn by turn."""
        forest = Forest()
        root = self._node(forest, np.zeros(1, np.int32), self.system_tokens)[0] if self.system_tokens else 0
        end = np.full(self.conversations, root, np.int32)
        for number in range(int(turn.max()) + 1):
            rows = np.flatnonzero(turn == number)
            requests["prompt_node"][rows] = self._node(forest, end[session[rows]], self.message_tokens)
            end[session[rows]] = self._node(forest, requests["prompt_node"][rows], self.output_tokens)
            requests["output_node"][rows] = end[session[rows]]
        return forest

    @staticmethod
    def _node(forest: Forest, parents: np.ndarray, tokens: int) -> np.ndarray:
        chars = round(tokens * forest.chars_per_token)
        return forest.add_nodes(parents, np.full(len(parents), tokens), np.full(len(parents), chars))
