"""SGLang's RadixCache evicts by a kvgym policy here; imported inside an SGLang server only.

Matching, inserting and locking are SGLang's own (0.5.23, `mem_cache/radix_cache.py`). A `MirrorCache` repeats each of
these operations on the compiled cache, where the policy keeps its order, and says which tails an eviction drops.
"""

from __future__ import annotations

import logging
import time
from typing import Any

from sglang.srt.mem_cache.base_prefix_cache import (
    DecLockRefParams,
    DecLockRefResult,
    EvictParams,
    EvictResult,
    IncLockRefResult,
    InsertParams,
    InsertResult,
    MatchPrefixParams,
    MatchResult,
)
from sglang.srt.mem_cache.cache_init_params import CacheInitParams
from sglang.srt.mem_cache.radix_cache import RadixCache, RadixKey, TreeNode

from kvgym.config.names import table
from kvgym.engine.mirror import ROOT, MirrorCache

logger = logging.getLogger(__name__)


class PolicyRadixCache(RadixCache):
    """A RadixCache that evicts by a kvgym policy, token by token where the policy says so.

    Args:
        params: SGLang's construction parameters.
        policy: name of an eviction policy.
        seed: of its random stream.
    """

    def __init__(self, params: CacheInitParams, policy: str, seed: int) -> None:
        self._policy = table("eviction").load(policy)
        self._seed = seed
        super().__init__(params)
        logger.info("kvgym eviction policy %r is in force (seed %d, page size %d)", policy, seed, self.page_size)

    def reset(self) -> None:
        """Empty the tree; the policy starts anew with the same seed."""
        super().reset()
        pool = self.token_to_kv_pool_allocator
        capacity = int(pool.size) if pool is not None else 1 << 30
        self._mirror = MirrorCache(self._policy, capacity, self.page_size, self._seed)
        self.root_node.mirrored = ROOT
        self._tree_nodes: dict[int, TreeNode] = {ROOT: self.root_node}

    def match_prefix(self, params: MatchPrefixParams) -> MatchResult:
        """Match as SGLang does; what was touched is touched in the mirror."""
        result = super().match_prefix(params)
        if result.last_device_node is not self.root_node:
            self._mirror.match(result.last_device_node.mirrored)
        return result

    def touch_prefix(self, key: RadixKey) -> None:
        """Refresh a prefix: to a policy this is a match."""
        self.match_prefix(MatchPrefixParams(key=key))

    def insert(self, params: InsertParams) -> InsertResult:
        """Insert as SGLang does; a leaf that it has made gets its twin."""
        result = super().insert(params)
        last = result.last_device_node
        if last is None or last is self.root_node:
            return result
        if not hasattr(last, "mirrored"):
            self._register(last, self._mirror.add(last.parent.mirrored, len(last.key)))
        self._mirror.insert(last.mirrored, min(params.priority or 0, 2**31 - 1), params.inserted_len)
        return result

    def _split_node(self, key: RadixKey, child: TreeNode, split_len: int) -> TreeNode:
        upper = super()._split_node(key, child, split_len)
        depth = _depth(upper)
        self._register(upper, self._mirror.split(child.mirrored, depth, _descendants(child)))
        return upper

    def inc_lock_ref(self, node: TreeNode) -> IncLockRefResult:
        """Lock as SGLang does, and in the mirror."""
        if not self.disable and node is not self.root_node:
            self._mirror.lock(node.mirrored)
        return super().inc_lock_ref(node)

    def dec_lock_ref(self, node: TreeNode, params: DecLockRefParams | None = None) -> DecLockRefResult:
        """Unlock as SGLang does, and in the mirror."""
        result = super().dec_lock_ref(node, params)
        if not self.disable and node is not self.root_node:
            self._mirror.unlock(node.mirrored)
        return result

    def evict(self, params: EvictParams) -> EvictResult:
        """Free at least ``params.num_tokens`` tokens if the policy finds them; return how many."""
        if self.disable:
            return EvictResult()
        start_s = time.perf_counter()
        freed = 0
        for number, keep in self._mirror.evict(params.num_tokens):
            node = self._tree_nodes[number]
            if keep:
                # The lower part is cut off as a node of its own; the upper one stays under the old number.
                upper = super()._split_node(node.key, node, keep)
                self._register(upper, number)
            else:
                del self._tree_nodes[number]
            self.token_to_kv_pool_allocator.free_segment(node.value, start_pos=0)
            freed += len(node.value)
            self._delete_leaf(node)
            self.kv_events.record_remove(node)
        self.update_eviction_metrics(freed, start_s)
        return EvictResult(num_tokens_evicted=freed)

    def _register(self, node: TreeNode, number: int) -> None:
        node.mirrored = number
        self._tree_nodes[number] = node


def _depth(node: TreeNode) -> int:
    """Return the tokens from the root to the end of `node`."""
    depth = 0
    while node.parent is not None:
        depth += len(node.key)
        node = node.parent
    return depth


def _descendants(node: TreeNode) -> list[int]:
    """Return the mirrored numbers below `node`."""
    numbers: list[int] = []
    stack: list[Any] = list(node.children.values())
    while stack:
        below = stack.pop()
        numbers.append(below.mirrored)
        stack.extend(below.children.values())
    return numbers
