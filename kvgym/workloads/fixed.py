"""Requests are written out row by row: for tests, examples and cases small enough to compute by hand."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from kvgym.config.options import option
from kvgym.errors import WorkloadError, did_you_mean
from kvgym.forest.forest import CHARS_PER_TOKEN, MOST_TOKENS, Forest
from kvgym.logs.rows import Row
from kvgym.types import REQUEST
from kvgym.workloads.base import Workload
from kvgym.workloads.building.sessions import make_workload

_PLAIN = ("arrival_s", "think_s", "output_tokens", "max_new_tokens", "priority", "tenant", "region")
_KEYS = ("path", "ids", "tokens", "answer", "session", *_PLAIN)


@dataclass(frozen=True)
class Fixed:
    """An explicit list of requests; all rows have `path`, or all have `ids`.

    A row is a mapping with the keys

    - ``path``: the prompt as a list of [key, tokens]; equal keys below the same parents are the same text,
      different keys differ in their first token; or
    - ``ids``: the prompt as block ids (token ids if block_tokens is 1), with ``tokens`` if the last block is cut;
    - ``output_tokens`` (1), ``answer``: what the answer is called where a later prompt continues it: a key for path
      rows, for id rows the ids of prompt + answer (default: an answer that no prompt continues);
    - ``arrival_s`` (0), ``think_s`` (0), ``session`` (its own; rows of one session follow each other),
      ``max_new_tokens`` (output_tokens), ``priority`` (0), ``tenant`` (0): whole numbers, ``region`` (0; where all rows
      have 0 the cluster's regions are drawn).
    """

    rows: tuple[Mapping[str, Any], ...] = field(metadata={"help": "the requests in order"})
    clients: int = option(0, "closed-loop clients; 0: open loop")
    block_tokens: int = option(1, "tokens per id of `ids` rows", "tokens")

    def generate(self, seed: int, page_size: int = 1) -> Workload:
        """Return the rows, compiled for `page_size`; the seed changes nothing."""
        del seed
        if not self.rows:
            raise WorkloadError("fixed: rows is empty; give at least one request")
        requests = np.zeros(len(self.rows), REQUEST)
        sessions: dict[Any, int] = {}
        for i, row in enumerate(self._checked()):
            for name in ("arrival_s", "think_s"):
                requests[i][name] = row.seconds(name, 0.0)
            requests[i]["output_tokens"] = row.tokens("output_tokens") if "output_tokens" in row.data else 1
            requests[i]["max_new_tokens"] = row.tokens("max_new_tokens", 0) if "max_new_tokens" in row.data else 0
            for name in ("priority", "tenant", "region"):
                requests[i][name] = row.whole(name)
            if requests[i]["region"] < 0:
                raise row.error("region", "a whole number >= 0")
            # a row without a session is alone in one: a tuple cannot be equal to a configured name or number
            requests[i]["session"] = sessions.setdefault(row.data.get("session", (i,)), len(sessions))
        fill = self._from_paths if "path" in self.rows[0] else self._from_ids
        forest = fill(requests, page_size)
        requests["prompt_chars"] = (requests["prompt_tokens"] * CHARS_PER_TOKEN).astype(np.int64)
        return make_workload("fixed", forest, requests, clients=self.clients, notes={"source": "fixed rows"})

    def _checked(self) -> Iterator[Row]:
        """Yield the rows after a look at their keys and at the form of their prompts."""
        kind = "path" if "path" in self.rows[0] else "ids"
        for i, data in enumerate(self.rows):
            row = Row(f"fixed: row {i}", dict(data))
            if unknown := [key for key in data if key not in _KEYS]:
                hint = did_you_mean(unknown[0], _KEYS) or ";"
                raise WorkloadError(f"{row.where} has the unknown key {unknown[0]!r}{hint} known: {', '.join(_KEYS)}")
            if kind not in data or ("path" in data and "ids" in data):
                raise WorkloadError(f"{row.where} must give its prompt as `{kind}`, as row 0 does, and in no other way")
            if kind == "path":
                self._check_path(row)
            else:
                self._check_ids(row)
            if not isinstance(data.get("session", 0), str | int):
                raise row.error("session", "text or a whole number")
            yield row

    def _check_path(self, row: Row) -> None:
        for step in row.items("path"):
            fit = isinstance(step, list | tuple) and len(step) == 2 and isinstance(step[0], str | int)
            if not fit or type(step[1]) is not int or not 1 <= step[1] <= MOST_TOKENS:
                raise row.error("path", f"a list of [key, tokens] with 1..{MOST_TOKENS:,} tokens")
        if sum(step[1] for step in row.data["path"]) > MOST_TOKENS:
            raise row.error("path", f"at most {MOST_TOKENS:,} tokens long")
        if not isinstance(row.data.get("answer", ""), str | int):
            raise row.error("answer", "a key (text or a whole number)")

    def _check_ids(self, row: Row) -> None:
        for name in ("ids", "answer"):
            if name in row.data and not all(type(i) is int and 0 <= i < 1 << 62 for i in row.items(name)):
                raise row.error(name, "a list of whole numbers in 0..2**62 - 1")
        count = len(row.data["ids"])
        if "tokens" in row.data and -(-row.tokens("tokens") // self.block_tokens) != count:
            raise row.error("tokens", f"a length that needs {count} ids of {self.block_tokens} tokens")

    def _from_paths(self, requests: np.ndarray, page_size: int) -> Forest:
        forest = Forest()
        known: dict[tuple[int, Any], int] = {}
        prompt, answer = np.zeros(len(requests), np.int32), np.zeros(len(requests), np.int32)
        for i, row in enumerate(self.rows):
            node = 0
            for key, tokens in row["path"]:
                node = _child(forest, known, node, key, int(tokens), i)
            prompt[i] = node
            requests[i]["prompt_tokens"] = forest.nodes[node]["end"]
            answer[i] = _child(forest, known, node, row.get("answer", (i,)), int(requests[i]["output_tokens"]), i)
        forest, node_map = forest.paged(page_size)
        requests["prompt_node"], requests["output_node"] = node_map[prompt], node_map[answer]
        return forest

    def _from_ids(self, requests: np.ndarray, page_size: int) -> Forest:
        forest, block = Forest(page_size, self.block_tokens), self.block_tokens
        fresh = -1
        for i, row in enumerate(self.rows):
            ids = list(row["ids"])
            prompt = int(row.get("tokens", len(ids) * block))
            total = prompt + int(requests[i]["output_tokens"])
            whole = list(row.get("answer", ids))
            if whole[: len(ids)] != ids:
                raise WorkloadError(f"fixed: row {i}: answer must start with the prompt's ids")
            if "answer" not in row:  # ids below 0 are used by nobody else
                missing = -(-total // block) - len(whole)
                whole += range(fresh, fresh - missing, -1)
                fresh -= max(missing, 0)
            requests[i]["prompt_tokens"] = prompt
            requests[i]["prompt_node"] = forest.insert(ids, prompt)
            requests[i]["output_node"] = forest.insert(whole, total)
        return forest


def _child(forest: Forest, known: dict[tuple[int, Any], int], parent: int, key: Any, tokens: int, row: int) -> int:
    """Return the child of `parent` called `key`, made on first use."""
    node = known.get((parent, key))
    if node is None:
        node = known[(parent, key)] = forest.add_node(parent, tokens)
    length = int(forest.nodes[node]["end"] - forest.nodes[node]["start"])
    if length != tokens:
        raise WorkloadError(f"fixed: row {row} gives {key!r} {tokens} tokens, but an earlier row gave it {length}")
    return node
