"""The prefix forest says which prompt shares which prefix with which other, as a flat append-only radix tree."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from kvgym.errors import WorkloadError
from kvgym.forest import trie
from kvgym.jit.door import as_records

NODE = np.dtype(
    [
        ("parent", np.int32),  # node id of the parent; -1 for the root (node 0)
        ("level", np.int32),  # number of ancestors; 0 for the root
        ("start", np.int32),  # depth of the parent's end, tokens from the beginning of the prompt
        ("end", np.int32),  # depth of this node's end, tokens; end > start except for the root (0, 0)
        ("chars", np.int32),  # length of this node's text, characters
        ("chars_end", np.int32),  # characters from the beginning of the prompt to this node's end
    ],
    align=True,
)
"""One node of the prefix forest. Node 0 is the empty root; a split may give a parent the larger id."""

CHARS_PER_TOKEN = 4.0
"""Characters per token where nothing is known of the text (the usual rule of thumb for English and BPE)."""
MOST_TOKENS = 1 << 28
"""Longest prompt or answer that a source may make, tokens: positions in tokens and characters have to fit 32 bits."""

_GROWTH = 2
_GOLDEN = 0x9E3779B97F4A7C15


class Forest:
    """Append-only prefix forest; node 0 is the empty root.

    Every start and end is a multiple of `page_size` and siblings differ within their first page, so the whole pages
    that two prompts share are exactly the path that their nodes share. A tail shorter than a page is never in the
    forest. There are two ways to fill it: `insert` (ids, compared by content, splits nodes where prompts diverge) and
    `add_nodes` (structure only, for generated workloads).

    On a split the lower half keeps its id, so a node that ends a known prompt stays valid; the upper half is new.

    Args:
        page_size: tokens per page.
        block_tokens: tokens that one inserted id stands for (1: ids are token ids).
        chars_per_token: text length of inserted nodes, characters per token.
    """

    def __init__(self, page_size: int = 1, block_tokens: int = 1, chars_per_token: float = CHARS_PER_TOKEN) -> None:
        if page_size < 1 or block_tokens < 1 or not chars_per_token > 0:
            raise WorkloadError(
                "page_size and block_tokens must be >= 1 and chars_per_token > 0, "
                f"got {page_size}, {block_tokens} and {chars_per_token}"
            )
        self.page_size = page_size
        self.block_tokens = block_tokens
        self.chars_per_token = float(chars_per_token)
        self._counts = np.array([1, 0, 0, 0], np.int64)
        self._nodes = np.zeros(16, NODE)
        self._nodes[0]["parent"] = -1
        self._links = np.zeros(16, trie.LINK)
        self._links[0]["pool"] = -1
        self._splits = np.zeros((16, 3), np.int32)
        self._pool = np.zeros(64, np.int64)
        self._table = np.zeros(64, np.int32)
        self._ranks: tuple[tuple[int, int], np.ndarray, np.ndarray] | None = None

    def __len__(self) -> int:
        return int(self._counts[trie.NODES])

    @property
    def nodes(self) -> np.ndarray:
        """NODE records, shape (len(self),): a view that is stale after the forest has grown."""
        return self._nodes[: len(self)]

    @property
    def splits(self) -> np.ndarray:
        """Log of node splits, int32 (splits, 3): new upper half, lower half (keeps its id), depth in tokens."""
        return self._splits[: self._counts[trie.SPLITS]]

    def path(self, node: int) -> np.ndarray:
        """Return the ids from the root's child to `node`, int32 (level,); empty for the root."""
        self._check_node(node)
        path = np.empty(self._nodes[node]["level"], np.int32)
        for i in range(len(path) - 1, -1, -1):
            path[i] = node
            node = self._nodes[node]["parent"]
        return path

    # -- ids --------------------------------------------------------------------------------------------------------

    def insert(self, ids: Sequence[int] | np.ndarray, tokens: int | None = None) -> int:
        """Insert one prompt and return the deepest node of its whole pages.

        Args:
            ids: chain of ids, one per `block_tokens` tokens; the last block may be cut.
            tokens: length of the prompt, default all of `ids`.
        """
        chain = np.ascontiguousarray(ids, np.int64)
        count = len(chain) * self.block_tokens if tokens is None else tokens
        return int(self.insert_many(chain, np.zeros(1, np.int64), np.array([count], np.int64))[0])

    def insert_many(self, ids: np.ndarray, starts: np.ndarray, tokens: np.ndarray) -> np.ndarray:
        """Insert many prompts in order; the same as calling `insert` for each, and much faster.

        Args:
            ids: the prompts' ids in one array, int64; prompts may overlap there (a prompt and its answer, say).
            starts: the ids of prompt i are ids[starts[i]:], as many as tokens[i] needs, int64 (prompts,).
            tokens: prompt lengths, int64 (prompts,).

        Returns:
            Node of each prompt, int32 (prompts,).

        Raises:
            WorkloadError: a prompt is longer than its ids reach.
        """
        ids, starts = np.ascontiguousarray(ids, np.int64), np.ascontiguousarray(starts, np.int64)
        tokens = np.ascontiguousarray(tokens, np.int64)
        blocks = -(-tokens // self.block_tokens)
        short = np.flatnonzero((starts < 0) | (tokens < 0) | (starts + blocks > len(ids)))
        if len(short):
            i = int(short[0])
            raise WorkloadError(
                f"{len(short)} of {len(tokens)} prompts do not fit their ids; prompt {i} has {tokens[i]} tokens and "
                f"{len(ids) - starts[i]} ids of {self.block_tokens} tokens"
            )
        out, done = np.zeros(len(tokens), np.int32), 0
        while done < len(tokens):
            self._reserve(2, int(blocks[done]), hashed=2)
            done = trie.insert_many(
                as_records(self._nodes), as_records(self._links), self._pool, self._table, self._counts, self._splits,
                ids, starts, tokens, out, done, self.page_size, self.block_tokens, self.chars_per_token,
            )  # fmt: skip
        return out

    # -- structure --------------------------------------------------------------------------------------------------

    def add_node(self, parent: int, tokens: int, chars: int | None = None) -> int:
        """Append one node of `tokens` tokens below `parent` and return its id (see `add_nodes`)."""
        text = round(tokens * self.chars_per_token) if chars is None else chars
        return int(self.add_nodes(np.array([parent]), np.array([tokens]), np.array([text]))[0])

    def add_nodes(self, parents: np.ndarray, tokens: np.ndarray, chars: np.ndarray) -> np.ndarray:
        """Append nodes known by structure only: each differs from all its siblings in its first token.

        Args:
            parents: parent ids, (n,); may name nodes appended earlier in this call.
            tokens: lengths, multiples of the page size, >= 1, (n,).
            chars: text lengths, >= 0, (n,).

        Returns:
            The new ids, int32 (n,), consecutive.
        """
        parents, tokens = np.ascontiguousarray(parents, np.int64), np.ascontiguousarray(tokens, np.int64)
        first, count = len(self), len(parents)
        ids = np.arange(first, first + count, dtype=np.int32)
        if not np.all((parents >= 0) & (parents < ids)):
            raise WorkloadError("every parent must be a node that exists before its child")
        bad = (tokens < 1) | (tokens % self.page_size != 0)
        if np.any(bad):
            raise WorkloadError(
                f"a node's length must be a positive multiple of the page size {self.page_size}, "
                f"got {int(tokens[bad][0])} ({int(bad.sum())} of {count} nodes); build at page size 1, then use paged()"
            )
        self._reserve(count, 0, hashed=0)
        nodes, links = as_records(self._nodes), as_records(self._links)
        trie.append_nodes(nodes, links, self._counts, parents, tokens, np.ascontiguousarray(chars, np.int64))
        return ids

    def paged(self, page_size: int) -> tuple[Forest, np.ndarray]:
        """Return this structural forest (page size 1) compiled for `page_size`, and the map of its nodes.

        Branch points round down to a page and the remainder moves into each child. A node that does not reach the end
        of a page dissolves into its parent. The map, int32 (len(self),), sends a node to the new node that holds the
        whole pages of its path.
        """
        if page_size == 1:
            return self, np.arange(len(self), dtype=np.int32)
        if self.page_size != 1 or self._counts[trie.HASHED]:
            raise WorkloadError(
                "paged() needs a forest built by add_nodes at page size 1; insert ids with the page size"
            )
        nodes = self.nodes
        end = nodes["end"] // page_size * page_size
        kept = end > nodes["start"] // page_size * page_size
        new_ids = np.cumsum(kept, dtype=np.int32)
        node_map = np.zeros(len(self), np.int32)
        for level in range(1, int(nodes["level"].max()) + 1):
            at = np.flatnonzero(nodes["level"] == level)
            node_map[at] = np.where(kept[at], new_ids[at], node_map[nodes["parent"][at]])
        rest = (nodes["end"] - end) * (nodes["chars"] / np.maximum(nodes["end"] - nodes["start"], 1))
        chars_end = np.zeros(int(new_ids[-1]) + 1, np.int64)
        chars_end[1:] = (nodes["chars_end"] - np.rint(rest).astype(np.int64))[kept]
        parents = node_map[nodes["parent"][kept]]
        forest = Forest(page_size, self.block_tokens, self.chars_per_token)
        lengths = end[kept] - nodes["start"][kept] // page_size * page_size
        forest.add_nodes(parents, lengths, chars_end[1:] - chars_end[parents])
        return forest, node_map

    # -- tokens -----------------------------------------------------------------------------------------------------

    def materialise(self, node: int, tokens: int, vocab_size: int) -> np.ndarray:
        """Return token ids for the path of `node` cut at `tokens`, int32 (tokens,).

        Nodes inserted as token ids give these; all others' tokens are made up: always the same, different
        among siblings within their first page. `tokens` may exceed the node's end by less than a page (a prompt's
        tail), which is filled up.

        Raises:
            WorkloadError: the siblings on the path, or the real ids, do not fit the vocabulary.
        """
        path = self.path(node)
        end = int(self._nodes[node]["end"])
        if not 0 <= tokens < end + self.page_size:
            raise WorkloadError(
                f"node {node} ends at {end}: tokens must be 0..{end + self.page_size - 1}, got {tokens}"
            )
        out = np.empty(max(tokens, end), np.int32)
        for step in path:
            start, stop = int(self._nodes[step]["start"]), int(self._nodes[step]["end"])
            real = self.block_tokens == 1 and self._links[step]["pool"] >= 0
            out[start:stop] = self._real(step, vocab_size) if real else self._made_up(step, vocab_size)
        depth = np.arange(end, len(out), dtype=np.uint64)
        out[end:] = _scatter(node, depth) % np.uint64(vocab_size)
        return out[:tokens]

    def _real(self, node: int, vocab_size: int) -> np.ndarray:
        record, offset = self._nodes[node], int(self._links[node]["pool"])
        ids = self._pool[offset + record["start"] : offset + record["end"]]
        wrong = int(((ids < 0) | (ids >= vocab_size)).sum())
        if wrong:
            raise WorkloadError(f"{wrong} token ids of node {node} lie outside the vocabulary of {vocab_size}")
        return ids

    def _made_up(self, node: int, vocab_size: int) -> np.ndarray:
        """Hash of (node, depth), but the first page spells the node's rank among its siblings in base `vocab_size`."""
        ranks, children = self._sibling_ranks()
        record = self._nodes[node]
        siblings, room = int(children[record["parent"]]), vocab_size ** min(self.page_size, 8)
        if siblings > room:
            raise WorkloadError(
                f"{siblings - room} of {siblings} children of node {record['parent']} do not fit a vocabulary of "
                f"{vocab_size} at page size {self.page_size}; use a larger vocabulary or page"
            )
        depth = np.arange(record["start"], record["end"], dtype=np.uint64)
        out = (_scatter(node, depth) % np.uint64(vocab_size)).astype(np.int64)
        rank, shift, at = int(ranks[node]), int(record["parent"]) * 7919, 0
        while vocab_size**at < siblings:
            # the shift only keeps the first tokens of different families apart; it is the same for all siblings
            out[at] = (rank // vocab_size**at + shift) % vocab_size
            at += 1
        return out

    def _sibling_ranks(self) -> tuple[np.ndarray, np.ndarray]:
        """Return each node's rank among its siblings and number of children (kept until the forest grows)."""
        state = (len(self), int(self._counts[trie.SPLITS]))
        if self._ranks is None or self._ranks[0] != state:
            parent = self.nodes["parent"][1:]
            children = np.bincount(parent, minlength=len(self))
            order = np.argsort(parent, kind="stable")
            ranks = np.zeros(len(self), np.int64)
            ranks[1:][order] = np.arange(len(parent)) - (np.cumsum(children) - children)[parent[order]]
            self._ranks = (state, ranks, children)
        return self._ranks[1], self._ranks[2]

    # -- memory -----------------------------------------------------------------------------------------------------

    def _reserve(self, nodes: int, ids: int, hashed: int) -> None:
        """Make room for so many more nodes, pool ids and entries of the hash table."""
        need = len(self) + nodes
        if need > np.iinfo(np.int32).max:
            raise WorkloadError(f"a forest holds at most 2**31 - 1 nodes, {need} were asked for")
        if need > len(self._nodes):
            size = max(need, _GROWTH * len(self._nodes))
            self._nodes = _grown(self._nodes, size)
            self._links = _grown(self._links, size)
            self._splits = _grown(self._splits, size)
        need = int(self._counts[trie.POOL]) + ids
        if need > len(self._pool):
            self._pool = self._grown_pool(need)
        need = 2 * (int(self._counts[trie.HASHED]) + hashed)
        if need > len(self._table):
            self._table = np.zeros(1 << (2 * need - 1).bit_length(), np.int32)
            nodes_links = as_records(self._nodes), as_records(self._links)
            trie.rebuild(*nodes_links, self._pool, self._table, self._counts, self.page_size, self.block_tokens)

    def _grown_pool(self, need: int) -> np.ndarray:
        """Return the pool with room for at least `need` ids."""
        return _grown(self._pool, max(need, _GROWTH * len(self._pool)))

    def _check_node(self, node: int) -> None:
        if not 0 <= node < len(self):
            raise WorkloadError(f"the forest has nodes 0..{len(self) - 1}, got {node}")

    def __getstate__(self) -> dict[str, Any]:
        """Return the state without spare room and without what can be recomputed."""
        state = dict(self.__dict__)
        state["_nodes"], state["_links"] = self.nodes.copy(), self._links[: len(self)].copy()
        state["_splits"] = self.splits.copy()
        state["_pool"] = self._pool[: self._counts[trie.POOL]].copy()
        state["_ranks"] = None
        return state


def _grown(array: np.ndarray, size: int) -> np.ndarray:
    """Return a zero-padded copy of `array` with `size` rows."""
    grown = np.zeros((size, *array.shape[1:]), array.dtype)
    grown[: len(array)] = array
    return grown


def _scatter(node: int, depth: np.ndarray) -> np.ndarray:
    """Return a well-mixed uint64 per depth (the finaliser of splitmix64)."""
    mixed = depth + np.uint64((int(node) * _GOLDEN) & 0xFFFFFFFFFFFFFFFF)
    mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return mixed ^ (mixed >> np.uint64(31))
