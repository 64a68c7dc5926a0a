"""Drives SGLang's own RadixCache from JSON lines; runs under the oracle's Python, never under kvgym's.

One request per line on stdin, one answer per line on stdout; every request starts from an empty cache:

    {"do": "operations", "page_size": 1, "policy": "lru", "sequences": [[token, ...], ...], "operations": [...]}
    {"do": "lifecycles", "page_size": 1, "policy": "lru", "capacity_tokens": 24500, "block_tokens": 1,
     "requests": [...]}

Operations (`sequence` is an index into `sequences`, `handle` the index of an earlier match operation):

    ["match", sequence, tokens]                           value: matched tokens
    ["insert", sequence, tokens, priority, inserted_len]  value: tokens that were there already
    ["lock", handle], ["unlock", handle]                  value: 0
    ["evict", tokens]                                     value: evicted tokens

Their answer is one row ``[value, evictable, protected, total]`` (tokens) per operation. A lifecycle request is
``[blocks, prompt_tokens, output, priority]``, its answer row ``[cached tokens, evicted tokens]``; see `run_lifecycles`.

SGLang stamps nodes with `time.monotonic`. Here a counter takes its place, so that no two stamps are equal even on a
machine with a coarse clock; on a fine clock the two are the same order.
"""

from __future__ import annotations

import itertools
import json
import sys
import time
import types
from array import array
from typing import Any

import torch
from sglang.srt.mem_cache import radix_cache
from sglang.srt.mem_cache.base_prefix_cache import EvictParams, InsertParams, MatchPrefixParams
from sglang.srt.mem_cache.cache_init_params import CacheInitParams

_ticks = itertools.count(1)
radix_cache.time = types.SimpleNamespace(monotonic=lambda: next(_ticks), perf_counter=time.perf_counter)


class _Pool:
    """Stands for the KV pool: RadixCache only tells it which slots an eviction has freed."""

    device = torch.device("cpu")
    size = 1 << 20

    def free_segment(self, indices: torch.Tensor, start_pos: int) -> None:
        """Accept freed slots (the drivers count tokens themselves)."""


class Cache:
    """SGLang's RadixCache with token arrays in and token counts out; "kvgym-NAME" puts kvgym's policy into it."""

    def __init__(self, page_size: int, policy: str) -> None:
        ours = policy.removeprefix("kvgym-")
        params = CacheInitParams(
            disable=False,
            req_to_token_pool=None,
            token_to_kv_pool_allocator=_Pool(),
            page_size=page_size,
            eviction_policy="lru" if ours != policy else policy,
        )
        if ours != policy:
            from kvgym.backends.sglang.policy_cache import PolicyRadixCache

            self.tree = PolicyRadixCache(params, ours, seed=0)
        else:
            self.tree = radix_cache.RadixCache(params)
        self._slots = torch.zeros(0, dtype=torch.int64)

    def match(self, tokens: array[int]) -> tuple[int, Any]:
        """Return the matched length and the last matched tree node."""
        found = self.tree.match_prefix(MatchPrefixParams(key=radix_cache.RadixKey(tokens)))
        return found.device_prefix_len, found.last_device_node

    def insert(self, tokens: array[int], priority: int, inserted_len: int) -> int:
        """Insert and return how many of the tokens the tree already had."""
        if len(tokens) > len(self._slots):
            self._slots = torch.zeros(2 * len(tokens), dtype=torch.int64)
        params = InsertParams(
            key=radix_cache.RadixKey(tokens),
            value=self._slots[: len(tokens)],
            priority=priority,
            inserted_len=inserted_len,
        )
        return self.tree.insert(params).prefix_len

    def evict(self, tokens: int) -> int:
        """Evict at least `tokens` if possible; return what was evicted."""
        return self.tree.evict(EvictParams(num_tokens=tokens)).num_tokens_evicted


def run_operations(request: dict[str, Any]) -> list[list[int]]:
    """Apply a batch of single operations to an empty cache; see the module docstring."""
    cache = Cache(request["page_size"], request["policy"])
    tree = cache.tree
    sequences = [array("q", tokens) for tokens in request["sequences"]]
    handles: dict[int, Any] = {}
    rows = []
    for index, (kind, *args) in enumerate(request["operations"]):
        value = 0
        if kind == "match":
            value, handles[index] = cache.match(sequences[args[0]][: args[1]])
        elif kind == "insert":
            value = cache.insert(sequences[args[0]][: args[1]], args[2], args[3])
        elif kind == "lock":
            tree.inc_lock_ref(handles[args[0]])
        elif kind == "unlock":
            tree.dec_lock_ref(handles[args[0]])
        elif kind == "evict":
            value = cache.evict(args[0])
        else:
            raise ValueError(f"unknown operation {kind!r}; known: match, insert, lock, unlock, evict")
        rows.append([value, tree.evictable_size(), tree.protected_size(), tree.total_size()])
    return rows


class Lifecycles:
    """Whole requests, one at a time, through the cache as SGLang's scheduler takes them.

    Admission matches all but the last prompt token and locks the match. Extend evicts the shortfall for the new tokens
    (plus one page when pages are larger than one token). After the prefill the prompt is checkpointed; each decode
    step asks for one token (or one page); at the end prompt + output - 1 tokens are checkpointed and the lock goes.
    """

    def __init__(self, page_size: int, policy: str, capacity_tokens: int) -> None:
        self.cache = Cache(page_size, policy)
        self.page = page_size
        self.free = capacity_tokens // page_size * page_size
        self.evicted = 0

    def run(self, prompt: array[int], output_ids: list[int], priority: int) -> tuple[int, int]:
        """Serve one request; return (cached tokens, tokens evicted on its behalf)."""
        before = self.evicted
        tokens = prompt + array("q", output_ids)
        total = len(tokens) - 1  # the last sampled token has no KV
        cached, node = self.cache.match(tokens[: len(prompt) - 1])
        self.cache.tree.inc_lock_ref(node)
        self._allocate(cached, len(prompt), len(prompt) - cached + (self.page if self.page > 1 else 0))
        state = (node, cached, 0)
        if total > len(prompt):
            state = self._checkpoint(tokens[: len(prompt)], len(prompt), priority, *state)
        for length in range(len(prompt), total):
            self._allocate(length, length + 1, self.page)
        node, protected, _ = self._checkpoint(tokens[:total], len(prompt), priority, *state)
        self.free += self._pages(total) - protected  # the partial page, if any
        self.cache.tree.dec_lock_ref(node)
        return cached, self.evicted - before

    def _pages(self, tokens: int) -> int:
        return -(-tokens // self.page) * self.page

    def _allocate(self, start: int, end: int, demand: int) -> None:
        """Take the pages that tokens [start, end) open, after evicting what `demand` lacks."""
        if demand > self.free:
            evicted = self.cache.evict(demand - self.free)
            self.evicted += evicted
            self.free += evicted
        self.free -= self._pages(end) - self._pages(start)
        if self.free < 0:
            raise ValueError(f"a request of {end} tokens does not fit; {-self.free} tokens are missing")

    def _checkpoint(
        self, tokens: array[int], prompt_tokens: int, priority: int, node: Any, protected: int, inserted: int
    ) -> tuple[Any, int, int]:
        """Publish `tokens`, free the duplicates and move the lock; return (node, protected, inserted) lengths."""
        length = len(tokens) // self.page * self.page
        prefix = self.cache.insert(tokens[:length], priority, inserted)
        prompt = prompt_tokens // self.page * self.page
        if 0 < prompt < length:
            self.cache.insert(tokens[:prompt], priority + 1, prompt)
        self.free += max(0, prefix - protected)
        matched, new_node = self.cache.match(tokens[:length])
        if matched != length:
            raise AssertionError(f"{length} tokens were inserted but {matched} match")
        self.cache.tree.dec_lock_ref(node)
        self.cache.tree.inc_lock_ref(new_node)
        return new_node, length, max(inserted, length)


def run_lifecycles(request: dict[str, Any]) -> list[list[int]]:
    """Serve a batch of requests one after the other from an empty cache.

    A prompt is the first `prompt_tokens` of its blocks; block b of n tokens holds the tokens b*n ... b*n + n - 1. An
    output is a list of token ids, or the number of tokens that nothing else contains.
    """
    fresh = itertools.count(1 << 60)
    engine = Lifecycles(request["page_size"], request["policy"], request["capacity_tokens"])
    block_tokens = request["block_tokens"]
    rows = []
    for blocks, prompt_tokens, output, priority in request["requests"]:
        output_ids = list(itertools.islice(fresh, output)) if isinstance(output, int) else output
        ids = torch.tensor(blocks, dtype=torch.int64)[:, None] * block_tokens + torch.arange(block_tokens)
        prompt = array("q", ids.numpy().tobytes())[:prompt_tokens]
        rows.append(list(engine.run(prompt, output_ids, priority)))
    return rows


def main() -> None:
    """Answer requests until stdin ends."""
    answers = {"operations": run_operations, "lifecycles": run_lifecycles}
    print(json.dumps("ready"), flush=True)
    for line in sys.stdin:
        request = json.loads(line)
        print(json.dumps(answers[request["do"]](request)), flush=True)


if __name__ == "__main__":
    main()
