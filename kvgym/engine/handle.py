"""A handle is one cache under manual control: `cache.radix` for tests, studies and other backends."""

from __future__ import annotations

import numpy as np

from kvgym.engine.cache.binding import bind
from kvgym.engine.cache.integrity import RULES, first_broken
from kvgym.engine.cache.policy import Policy, write_constants
from kvgym.engine.engine import default_options
from kvgym.engine.growth import grow
from kvgym.engine.state import new_cache
from kvgym.errors import ConfigError, SimulationError
from kvgym.jit.door import as_records


class CacheHandle:
    """Caches of some workers, driven operation by operation.

    A prefix is (forest node, tokens): the first `tokens` tokens of the node's path, whole pages. Slots are named by
    number; the root of worker w is slot w.

    Args:
        nodes: forest NODE records.
        policy: eviction policy.
        capacity_tokens: KV pool per worker.
        page_size: tokens per page, the one that the forest was compiled for.
        workers: number of workers.
        seed: of the policies' random streams.
    """

    def __init__(
        self,
        nodes: np.ndarray,
        policy: Policy,
        capacity_tokens: int,
        page_size: int = 1,
        workers: int = 1,
        seed: int = 0,
    ) -> None:
        from kvgym.engine.entry import entry_cache

        if policy.oracle:
            raise ConfigError("a cache under manual control has no known future: no oracle policy can run on it")

        self._entry = entry_cache
        self.policy = policy
        self._bound = bind(policy)
        options = default_options()
        options["page"] = page_size
        self.cache = new_cache(
            as_records(np.ascontiguousarray(nodes)),
            np.full(workers, capacity_tokens, np.int64),
            options,
            seed,
            memory=policy.memory,
        )
        write_constants(self.cache, policy)

    def _reserve(self) -> None:
        leaves = int(self.cache.workers["leaves"].max())
        if self.cache.clock["free_slots"][0] < 8 or leaves + 8 > self.cache.order.shape[1]:
            self.cache = grow(self.cache)

    def match(self, worker: int, node: int, tokens: int) -> tuple[int, int]:
        """Match a prefix; return (matched tokens, slot in which the match ends)."""
        self._reserve()
        slot = int(self._entry.match(self.cache, worker, node, tokens, self._bound))
        return int(self.cache.slots["d1"][slot]), slot

    def insert(self, worker: int, node: int, tokens: int, priority: int = 0, inserted_len: int = 0) -> int:
        """Insert a prefix, taking what is missing from the free pool; return the tokens that were there before.

        Raises:
            SimulationError: the free pool is too small; evict first.
        """
        self._reserve()
        missing = tokens - self.peek(worker, node, tokens)
        free = int(self.cache.workers["free"][worker])
        if missing > free:
            raise SimulationError(f"insert needs {missing} tokens but {free} are free on worker {worker}; evict first")
        slots = self._entry.insert(self.cache, worker, node, tokens, priority, inserted_len, self._bound)
        self.cache.workers["free"][worker] -= missing
        return int(slots[1])

    def peek(self, worker: int, node: int, tokens: int) -> int:
        """Return how many tokens of the prefix are resident; changes nothing."""
        return int(self._entry.look(self.cache, worker, node, tokens))

    def lock(self, worker: int, slot: int) -> None:
        """Add a lock to a slot and its ancestors."""
        self._entry.lock(self.cache, worker, slot, self._bound)

    def unlock(self, worker: int, slot: int) -> None:
        """Remove a lock from a slot and its ancestors.

        Raises:
            SimulationError: the slot is not locked.
        """
        if slot != worker and self.cache.slots["lock"][slot] < 1:
            raise SimulationError(f"slot {slot} of worker {worker} is not locked")
        self._entry.unlock(self.cache, worker, slot, self._bound)

    def evict(self, worker: int, tokens: int) -> int:
        """Let the policy free at least `tokens` tokens if it can; return how many it freed."""
        before = int(self.cache.workers["evicted"][worker])
        if tokens > 0:
            self.cache.workers["need"][worker] = tokens
            self._entry.serve_eviction(self.cache, worker, self._bound)
        return int(self.cache.workers["evicted"][worker]) - before

    def evict_slots(self, worker: int, tokens: int) -> list[int]:
        """`evict`; return the slots that are gone, in the order in which they went (their last fields still stand)."""
        slots, before = [], int(self.cache.clock["free_slot"][0])
        self.evict(worker, tokens)
        slot = int(self.cache.clock["free_slot"][0])
        while slot != before:
            slots.append(slot)
            slot = int(self.cache.slots["parent"][slot])
        return slots[::-1]

    def find(self, worker: int, node: int) -> int:
        """Return the slot that begins where forest node `node` begins, or -1."""
        return int(self._entry.find(self.cache, worker, node))

    def split_node(self, worker: int, node: int, upper: int, depth: int) -> None:
        """Make the unused forest node `upper` the upper half of `node`, cut at `depth`; see `radix`."""
        self._entry.split_node(self.cache, worker, node, upper, depth)

    def free_tokens(self, worker: int) -> int:
        """Tokens of the pool that nobody holds."""
        return int(self.cache.workers["free"][worker])

    def evictable_tokens(self, worker: int) -> int:
        """Resident tokens that are not locked."""
        return int(self.cache.workers["evictable"][worker])

    def protected_tokens(self, worker: int) -> int:
        """Resident tokens that are locked."""
        return int(self.cache.workers["protected"][worker])

    def resident_tokens(self, worker: int) -> int:
        """All resident tokens."""
        return self.evictable_tokens(worker) + self.protected_tokens(worker)

    def check(self) -> None:
        """Check every invariant.

        Raises:
            SimulationError: the first broken one.
        """
        worker, rule = first_broken(self.cache)
        if rule:
            raise SimulationError(f"broken invariant on worker {worker}: {RULES[rule]}")
