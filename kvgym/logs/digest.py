"""An import remembers of a log each request's place in a forest, its lengths, times and session.

Prompts and answers enter the forest batch by batch (ids on disk, nodes in memory); some eighty bytes stay of a request.
Sessions are named by the log or inferred (`continuation`). An answer that the log does not have is taken from the
prompt that continues it.
"""

from __future__ import annotations

from hashlib import blake2b
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from kvgym.errors import WorkloadError
from kvgym.forest.diskforest import DiskForest
from kvgym.forest.forest import CHARS_PER_TOKEN
from kvgym.forest.structure import extract
from kvgym.jit.door import as_records
from kvgym.logs import columnar
from kvgym.logs.continuation import TURN, link, number_sessions
from kvgym.logs.entries import Entry
from kvgym.logs.fields import UNSAID_LATENCIES
from kvgym.logs.pieces import PieceTokeniser
from kvgym.logs.reported import Lengths
from kvgym.logs.tokens import Tokenise

_MOST_ID = 2**31
_MOST_TOO_LONG = 0.5
"""Share of latencies without a unit that may exceed the gap to the next turn before they are taken as milliseconds."""


class Digest:
    """Takes the requests of a log in batches and gives the columns of a workload file.

    Args:
        tokenise: texts to token ids.
        folder: for temporary files; the caller removes it.
        exact: the tokenizer is the server's, so that its ids and logged ones may meet in one prompt.
        keep_text: write prompts and answers to the file `texts`.
    """

    def __init__(self, tokenise: Tokenise, folder: Path, *, exact: bool, keep_text: bool) -> None:
        self.texts = folder / "texts.parquet"
        self.count = 0
        self._exact = exact
        self._tokenise = PieceTokeniser(tokenise)
        self._forest = DiskForest(folder / "ids", CHARS_PER_TOKEN)
        self._turns = np.zeros(1024, TURN)
        self._marks, self._near = np.full(1024, -1, np.int32), np.zeros(1024, np.int32)
        self._splits_seen = 0
        form = pa.schema([(name, pa.string()) for name in columnar.TEXTS])
        self._writer = pq.ParquetWriter(self.texts, form, compression="zstd") if keep_text else None
        self._lengths = Lengths(exact)
        self._latency_fields: set[str] = set()

    def __enter__(self) -> Digest:
        return self

    def __exit__(self, *_: object) -> None:
        if self._writer is not None:
            self._writer.close()

    def add(self, entries: list[Entry]) -> None:
        """Take the next requests of the log."""
        begin, self.count = self.count, self.count + len(entries)
        if self.count > len(self._turns):
            self._turns = _grown(self._turns, self.count, 0)
        turns = self._turns[begin : self.count]
        prompts, answers = self._tokens(entries)
        self._lengths.follow(entries, prompts, answers)
        self._latency_fields.update(entry.latency_field for entry in entries if entry.latency_field)
        for turn, entry, (ids, answer) in zip(turns, entries, prompts, strict=True):
            self._note(turn, entry, ids, answer)
        self._insert(turns, [ids for ids, _ in prompts], answers)
        self._marks = _grown(self._marks, len(self._forest), -1)
        self._near = _grown(self._near, len(self._forest), 0)
        splits = self._forest.splits
        link(
            as_records(self._turns[: self.count]), as_records(self._forest.nodes), self._marks, self._near,
            splits[self._splits_seen :], begin,
        )  # fmt: skip
        self._splits_seen = len(splits)
        if self._writer is not None:
            self._writer.write_table(_text_table(entries, self._writer.schema))

    def finish(self) -> tuple[dict[str, np.ndarray], np.ndarray, dict[str, Any]]:
        """Return the columns, the number of list entries of each request, and what was found (see `columnar.write`)."""
        turns = self._turns[: self.count]
        number_sessions(as_records(turns))
        session, tenant = _by_appearance(turns["session"]), _by_size(turns["tenant"])
        order = np.lexsort((np.arange(len(turns)), turns["time_s"], session))
        follows = np.flatnonzero(session[order[1:]] == session[order[:-1]]) + 1
        before, after = order[follows - 1], order[follows]
        unknown = turns["output_node"] < 0
        self._find_answers(before, after)
        think_s = np.full(len(turns), np.nan)
        gap_s = turns["time_s"][after] - turns["time_s"][before]
        in_ms = self._latency_fields <= set(UNSAID_LATENCIES) and _are_milliseconds(turns["latency_s"][before], gap_s)
        if in_ms:
            turns["latency_s"] /= 1000.0
        gap_s = gap_s - turns["latency_s"][before]
        think_s[after] = np.maximum(gap_s, 0.0)
        structure = extract(self._forest, np.stack((turns["prompt_node"], turns["output_node"]), axis=1))
        columns = {name: turns[name] for name in ("prompt_tokens", "output_tokens", "max_new_tokens", "priority")}
        columns |= {
            "arrival_s": turns["time_s"] - np.nanmin(turns["time_s"], initial=np.inf),
            "think_s": think_s,
            "session": session,
            "tenant": tenant,
            "prompt_node": structure.ends[:, 0],
            "output_node": structure.ends[:, 1],
            "node_parent": structure.parents,
            "node_end": structure.node_ends,
        }
        chars_per_token = self._tokenise.chars / self._tokenise.tokens if self._tokenise.tokens else CHARS_PER_TOKEN
        return columns, structure.counts, {
            "requests": len(turns),
            "sessions": int(session.max()) + 1,
            "tenants": int(tenant.max()) + 1,
            "continuations_inferred": int((turns["previous"] >= 0).sum()),
            "answers_from_the_next_prompt": int((unknown & (turns["output_node"] >= 0)).sum()),
            "answers_unknown": int((turns["output_tokens"] == 0).sum()),
            "prompt_tokens": int(turns["prompt_tokens"].sum(dtype=np.int64)),
            **self._lengths.facts,
            "latencies_taken_as_ms": in_ms,
            "latencies_longer_than_the_gap": int((gap_s < -1e-3).sum()),
            "chars_per_token": round(chars_per_token, 4),
            "tick_s": _tick(turns["time_s"]),
        }  # fmt: skip

    def _note(self, turn: np.void, entry: Entry, ids: np.ndarray, answer: tuple[int, int]) -> None:
        """Write what is known of `entry` beside its place in the forest."""
        if not len(ids):
            raise WorkloadError(f"{entry.where}: the prompt has no tokens")
        turn["time_s"] = np.nan if entry.time_s is None else entry.time_s
        turn["latency_s"] = np.nan if entry.latency_s is None else entry.latency_s
        turn["session"], turn["owner"] = _fingerprint(entry.session), _fingerprint(entry.owner)
        turn["tenant"] = _fingerprint(entry.tenant)
        turn["prompt_tokens"] = len(ids)
        turn["answer_start"], turn["answer_end"] = answer
        turn["max_new_tokens"], turn["priority"] = entry.max_new_tokens, entry.priority
        turn["output_tokens"] = 1 if "empty_answers" in entry.misfits else entry.output_tokens or 0

    def _tokens(self, entries: list[Entry]) -> tuple[list[tuple[np.ndarray, tuple[int, int]]], list[list[np.ndarray]]]:
        """Return of each entry the prompt's ids with the place of its last answer, and the ids [thinking, answer]."""
        wanted: list[str] = []
        for entry in entries:
            wanted += [text for text in (entry.prompt, entry.thinking or None, entry.answer) if isinstance(text, str)]
        made = iter(self._tokenise(wanted))
        prompts: list[tuple[np.ndarray, tuple[int, int]]] = []
        answers: list[list[np.ndarray]] = []
        for entry in entries:
            prompts.append(next(made) if isinstance(entry.prompt, str) else (entry.prompt, (-1, -1)))
            thinking = next(made)[0] if entry.thinking else np.zeros(0, np.int64)
            if entry.answer is None:
                answers.append([])
                continue
            answer = next(made)[0] if isinstance(entry.answer, str) else entry.answer
            if not self._exact and isinstance(entry.answer, str) != isinstance(entry.prompt, str):
                # made-up ids and real ones have nothing in common: only the length tells something
                entry.output_tokens = entry.output_tokens or len(thinking) + len(answer)
                answers.append([])
            else:
                answers.append([thinking, answer] if len(thinking) + len(answer) else [])
        return prompts, answers

    def _insert(self, turns: np.ndarray, prompts: list[np.ndarray], answers: list[list[np.ndarray]]) -> None:
        """Insert each prompt, then it with its answer, then (if thinking lies between) as a later prompt repeats it."""
        parts: list[np.ndarray] = []
        sequences: list[tuple[int, int]] = []  # start, length
        at = 0
        for prompt, answer in zip(prompts, answers, strict=True):
            whole = [prompt, *answer]
            length = sum(map(len, whole))
            sequences += [(at, len(prompt)), (at, length)]
            parts += whole
            at += length
            if answer and len(answer[0]):
                parts += [prompt, answer[1]]
                length = len(prompt) + len(answer[1])
                sequences.append((at, length))
                at += length
            else:
                sequences.append(sequences[-1])
        starts, lengths = np.array(sequences, np.int64).T
        nodes = self._forest.insert_many(np.concatenate(parts), starts, lengths).reshape(-1, 3)
        lengths = lengths.reshape(-1, 3)
        known = np.array([bool(answer) for answer in answers])
        turns["prompt_node"] = nodes[:, 0]
        turns["output_node"] = np.where(known, nodes[:, 1], -1)
        turns["output_tokens"] = np.where(known, lengths[:, 1] - lengths[:, 0], turns["output_tokens"])
        turns["mark_node"], turns["mark_tokens"] = nodes[:, 2], lengths[:, 2]

    def _find_answers(self, before: np.ndarray, after: np.ndarray) -> None:
        """Give requests without an answer the one that their successor's prompt repeats.

        It is the last answer of a chat if it starts where the earlier prompt ends; in other prompts it is as long as
        the log says, if the later prompt starts with the earlier one and is that much longer.
        """
        turns, forest = self._turns, self._forest
        missing = turns["output_node"][before] < 0
        for k, i in zip(before[missing], after[missing], strict=True):
            prompt, later = int(turns["prompt_tokens"][k]), turns[i]
            count = int(turns["output_tokens"][k])
            if later["answer_start"] == prompt and later["answer_end"] > prompt:
                count = int(later["answer_end"]) - prompt
            if count == 0 or later["prompt_tokens"] < prompt + count:
                continue
            if turns["prompt_node"][k] not in forest.path(int(later["prompt_node"])):
                continue
            ids = forest.materialise(int(later["prompt_node"]), prompt + count, _MOST_ID)
            turns["output_node"][k], turns["output_tokens"][k] = forest.insert(ids), count


def _fingerprint(name: str) -> int:
    """Return a positive 62-bit number for a name, 0 for none."""
    digest = blake2b(name.encode("utf-8", "surrogatepass"), digest_size=8).digest()
    return (int.from_bytes(digest) >> 2) + 1 if name else 0


def _by_appearance(keys: np.ndarray) -> np.ndarray:
    """Return 0, 1, ... for each distinct key, in the order of their first appearance; int32."""
    _, first, inverse = np.unique(keys, return_index=True, return_inverse=True)
    rank = np.empty(len(first), np.int32)
    rank[np.argsort(first)] = np.arange(len(first))
    return rank[inverse]


def _by_size(keys: np.ndarray) -> np.ndarray:
    """Return 0, 1, ... for each distinct key, the most frequent first, then in the order of first appearance; int32."""
    _, first, inverse, counts = np.unique(keys, return_index=True, return_inverse=True, return_counts=True)
    rank = np.empty(len(first), np.int32)
    rank[np.lexsort((first, -counts))] = np.arange(len(first))
    return rank[inverse]


def _tick(stamps_s: np.ndarray) -> float:
    """Return 1.0 if the log counts whole seconds (all stamps are whole and some are equal), else 0.0."""
    whole = bool(np.all(stamps_s == np.floor(stamps_s)))
    return 1.0 if whole and len(np.unique(stamps_s)) < len(stamps_s) else 0.0


def _are_milliseconds(latency_s: np.ndarray, gap_s: np.ndarray) -> bool:
    """Say whether latencies are milliseconds: most exceed the gap to the next turn, and as these none does."""
    known = ~np.isnan(latency_s) & ~np.isnan(gap_s)
    if not known.any():
        return False
    latency_s, gap_s = latency_s[known], gap_s[known]
    return bool((latency_s > gap_s).mean() > _MOST_TOO_LONG and (latency_s / 1000.0 <= gap_s + 1e-3).all())


def _grown(array: np.ndarray, size: int, fill: int) -> np.ndarray:
    """Return `array` with room for `size` rows, at least doubled if it has to grow; new rows hold `fill`."""
    if size <= len(array):
        return array
    grown = np.full(max(size, 2 * len(array)), fill, array.dtype)
    grown[: len(array)] = array
    return grown


def _text_table(entries: list[Entry], form: pa.Schema) -> pa.Table:
    rows = []
    for entry in entries:
        answer = entry.thinking + entry.answer if isinstance(entry.answer, str) else None
        rows.append([_clean(entry.prompt), _clean(answer)])
    return pa.table([list(column) for column in zip(*rows, strict=True)], schema=form)


def _clean(text: str | np.ndarray | None) -> str | None:
    """Return `text` fit for UTF-8 (JSON may hold half a surrogate pair); None for token ids."""
    return text.encode("utf-8", "replace").decode() if isinstance(text, str) else None
