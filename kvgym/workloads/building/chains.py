"""Block-id sessions become id chains: ranges to ids, unknown tails and answers, which turn continues which."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from kvgym.errors import WorkloadError
from kvgym.forest.forest import MOST_TOKENS, Forest
from kvgym.logs.rows import Row


@dataclass
class Turn:
    """One request as read from a file."""

    time_s: float  # since the session's start
    think_s: float | None  # None: the file does not say
    prompt_tokens: int
    output_tokens: int
    ids: np.ndarray  # ids of the prompt's full blocks, int64
    block: int
    misfits: dict[str, WorkloadError]  # what was repaired in this row: kind -> what the row should have been


class Chains:
    """Hands out ids that nobody shares and inserts sessions into a forest."""

    def __init__(self) -> None:
        self._fresh = -1

    def fresh(self, count: int) -> np.ndarray:
        """Return `count` new ids, all negative, that no file contains; none if `count` is negative."""
        count = max(count, 0)
        self._fresh -= count
        return np.arange(self._fresh + 1, self._fresh + 1 + count, dtype=np.int64)

    def insert(self, forest: Forest, turns: list[Turn]) -> np.ndarray:
        """Insert one session's prompts, each followed by its answer; return their nodes, int32 (turns, 2).

        Turn k+1 continues the answer of turn k iff it starts with all full blocks of turn k and is at least as long as
        its prompt + answer. Then the blocks after turn k's full ones are those of turn k+1, else they are fresh.
        """
        whole: list[np.ndarray] = []
        for k in range(len(turns) - 1, -1, -1):
            turn = turns[k]
            total = turn.prompt_tokens + turn.output_tokens
            missing = -(-total // turn.block) - len(turn.ids)
            if whole and _continues(turn, turns[k + 1]):
                rest = whole[-1][len(turn.ids) : len(turn.ids) + missing]
            else:
                rest = self.fresh(missing)
            whole.append(np.concatenate((turn.ids, rest)))
        whole.reverse()
        starts = np.cumsum([0] + [len(chain) for chain in whole[:-1]])
        lengths = np.array([(t.prompt_tokens, t.prompt_tokens + t.output_tokens) for t in turns], np.int64)
        return forest.insert_many(np.concatenate(whole), np.repeat(starts, 2), lengths.ravel()).reshape(-1, 2)


def _continues(turn: Turn, later: Turn) -> bool:
    long_enough = later.prompt_tokens >= turn.prompt_tokens + turn.output_tokens
    return long_enough and np.array_equal(later.ids[: len(turn.ids)], turn.ids)


def count_repairs(turns: list[Turn], allowed: bool) -> dict[str, int]:
    """Return how many rows needed each kind of repair.

    Raises:
        WorkloadError: there are some and repairs are not `allowed`; names the first and counts them all.
    """
    counts = {kind: sum(kind in turn.misfits for turn in turns) for kind in ("id_counts", "empty_answers")}
    if any(counts.values()) and not allowed:
        first = next(error for turn in turns for error in turn.misfits.values())
        raise WorkloadError(
            f"{first} (rows with a wrong id count: {counts['id_counts']}, with an empty answer: "
            f"{counts['empty_answers']}); set repair: true to fit them"
        ) from first
    return {f"repaired_{kind}": count for kind, count in counts.items()}


def read_turn(row: Row, block: int, shift: int, chains: Chains, offset_s: float) -> Turn:
    """Return the request in `row` {t, in, out, h, think}; ids get `shift` added, times `offset_s`."""
    prompt, output = row.tokens("in"), row.tokens("out", least=0)
    misfits: dict[str, WorkloadError] = {}
    if output == 0:
        misfits["empty_answers"] = row.error("out", "a whole number of tokens >= 1")
        output = 1
    ids, full = _expand(row) + shift, prompt // block
    if len(ids) != full:
        misfits["id_counts"] = WorkloadError(
            f"{row.where}: h must list the {full} full blocks of in = {prompt}, got {len(ids)}"
        )
        ids = np.concatenate((ids[:full], chains.fresh(full - len(ids))))
    think = row.seconds("think") if "think" in row.data else None
    return Turn(offset_s + row.seconds("t", default=0.0), think, prompt, output, ids, block, misfits)


def _expand(row: Row) -> np.ndarray:
    """Return the ids of h = [[first, count], ...], int64."""
    ranges = row.items("h")
    for item in ranges:
        pair = isinstance(item, list) and len(item) == 2 and all(type(v) is int for v in item)
        if not pair or not 0 <= item[0] < 1 << 40 or not 1 <= item[1] < 1 << 31:
            raise row.error("h", "a list of [first id >= 0, count >= 1]")
    if sum(count for _, count in ranges) > MOST_TOKENS // 16:
        raise row.error("h", f"at most {MOST_TOKENS // 16:,} ids")
    parts = [np.arange(first, first + count, dtype=np.int64) for first, count in ranges]
    return np.concatenate(parts) if parts else np.zeros(0, np.int64)
