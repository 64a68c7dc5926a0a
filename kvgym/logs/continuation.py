"""A logged request continues another if its prompt, turn k + 1, starts with turn k's prompt and answer.

Every answer that is known leaves a mark on the forest node where it ends. A later prompt whose path runs through a mark
and goes on continues that request. Three things make this fit real logs:

- A tokenizer may join the end of an answer with what follows it, so up to two tokens at that seam may differ.
- Where an answer was not logged, the prompt's end is marked, and a chat continues it if its last answer starts there.
- Equal conversations are continued one by one, the latest first, and only by requests of the same owner.
"""

from __future__ import annotations

import numpy as np

from kvgym.jit.door import njit

TURN = np.dtype(
    [
        ("time_s", np.float64),  # arrival; NaN: not known
        ("latency_s", np.float64),  # from arrival to the end of the answer; NaN: not known
        ("session", np.int64),  # fingerprint of the session's name; 0: none, to be inferred
        ("owner", np.int64),  # fingerprint of the owner's name; 0: none
        ("tenant", np.int64),  # fingerprint of the tenant's name; 0: none
        ("prompt_node", np.int32),
        ("output_node", np.int32),  # -1: the answer is not known
        ("mark_node", np.int32),  # where a continuation branches off
        ("prompt_tokens", np.int32),
        ("output_tokens", np.int32),  # 0: not known
        ("mark_tokens", np.int32),  # length of prompt and answer as a later prompt would repeat them
        ("answer_start", np.int32),  # tokens before the last answer inside this prompt; -1: there is none
        ("answer_end", np.int32),
        ("max_new_tokens", np.int32),
        ("priority", np.int32),
        ("previous", np.int32),  # the request that this one continues; -1: none
        ("below", np.int32),  # the next older request with the same mark; -1: none
        ("continued", np.int32),  # 1: some request continues this one
    ],
    align=True,
)
"""What an import keeps of each request."""

SEAM_TOKENS = 2
_MOST_TRIES = 64  # requests with the same mark that are looked at: bounds the time where thousands say the same


@njit()
def _fits(turns: np.ndarray, k: int, i: int, depth: int) -> bool:
    """Say whether request `i`, which shares `depth` tokens with the marked end of request `k`, continues it."""
    if turns[k].continued != 0 or turns[k].owner != turns[i].owner:
        return False
    if turns[k].output_node < 0:
        return turns[i].answer_start == turns[k].prompt_tokens
    return turns[i].prompt_tokens > turns[k].mark_tokens and depth > turns[k].prompt_tokens


@njit()
def _find(turns: np.ndarray, nodes: np.ndarray, marks: np.ndarray, near: np.ndarray, i: int) -> int:
    """Return the request that `i` continues, the one with the longest common beginning; -1 if there is none."""
    node = turns[i].prompt_node
    while node > 0:
        for mark in (node, near[node]):
            k = marks[mark] if mark > 0 else -1
            tries = 0
            while k >= 0 and tries < _MOST_TRIES:
                if _fits(turns, k, i, nodes[node].end):
                    return k
                k = turns[k].below
                tries += 1
        node = nodes[node].parent
    return -1


@njit()
def link(
    turns: np.ndarray, nodes: np.ndarray, marks: np.ndarray, near: np.ndarray, splits: np.ndarray, begin: int
) -> None:
    """Fill `previous` of requests begin..len(turns)-1, in their order, and mark where they may be continued.

    Args:
        turns: TURN records; their prompts and answers are in the forest.
        nodes: the forest's NODE records.
        marks: newest request marked at each node, int32 (nodes,); -1: none.
        near: a node with a mark at most SEAM_TOKENS below each node, int32 (nodes,); 0: none.
        splits: the forest's splits since the last call, int32 (splits, 3).
        begin: first request to link; requests with a session of their own are left alone.
    """
    for row in range(len(splits)):
        upper, lower = splits[row, 0], splits[row, 1]
        if nodes[lower].end - nodes[upper].end <= SEAM_TOKENS:
            near[upper] = lower
    for i in range(begin, len(turns)):
        turns[i].previous = -1
        if turns[i].session != 0:
            continue
        k = _find(turns, nodes, marks, near, i)
        if k >= 0:
            turns[i].previous = k
            turns[k].continued = 1
        mark = turns[i].mark_node
        if mark > 0:
            below = marks[mark]
            while below >= 0 and turns[below].continued != 0:
                below = turns[below].below
            turns[i].below = below
            marks[mark] = i
            parent = nodes[mark].parent
            if parent > 0 and nodes[mark].end - nodes[parent].end <= SEAM_TOKENS:
                near[parent] = mark


@njit()
def number_sessions(turns: np.ndarray) -> None:
    """Give every request of an inferred session the number -1 - (its first request) as `session`."""
    for i in range(len(turns)):
        if turns[i].session == 0:
            previous = turns[i].previous
            turns[i].session = -1 - i if previous < 0 else turns[previous].session
