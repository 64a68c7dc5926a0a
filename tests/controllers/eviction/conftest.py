"""A cache under manual control, spelled in words: equal first letters are a shared prefix, a letter is a token."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from controllers.eviction import EVICTION
from kvgym.engine.handle import CacheHandle
from kvgym.forest.forest import Forest


class WordCache(CacheHandle):
    """One worker whose prompts are among `words`, one letter per page."""

    def __init__(self, policy: str, capacity_pages: int, words: list[str], page: int = 1, seed: int = 0) -> None:
        self.page = page
        self.forest = Forest(page)
        self.nodes = {word: self.forest.insert(self.spell(word)) for word in words}
        super().__init__(self.forest.nodes, EVICTION.load(policy), capacity_pages * page, page, seed=seed)

    def spell(self, word: str) -> list[int]:
        return [ord(letter) for letter in word for _ in range(self.page)]

    def word(self, slot: int) -> str:
        """The letters from the root to the end of a slot."""
        record = self.cache.slots[slot]
        tokens = self.forest.materialise(int(record["node"]), int(record["d1"]), 256)
        return "".join(chr(t) for t in tokens[:: self.page])

    def look(self, word: str, pages: int | None = None) -> tuple[int, int]:
        """Match the first `pages` letters of a word; return (matched pages, slot)."""
        tokens, slot = self.match(0, self.nodes[word], (len(word) if pages is None else pages) * self.page)
        return tokens // self.page, slot

    def put(self, word: str, pages: int | None = None, priority: int = 0) -> None:
        """Insert the first `pages` letters of a word."""
        self.insert(0, self.nodes[word], (len(word) if pages is None else pages) * self.page, priority)

    def serve(self, word: str) -> int:
        """Look up, lock, evict what is short, insert, unlock; return the missed pages."""
        found, slot = self.look(word)
        self.lock(0, slot)
        self.evict(0, (len(word) - found) * self.page - self.free_tokens(0))
        self.put(word)
        self.unlock(0, slot)
        return len(word) - found

    def new_phase(self) -> None:
        """For marking policies: nothing is marked, every leaf is a candidate."""
        worker = self.cache.workers[0]
        worker["epoch"] += 1
        worker["marked"], worker["unmarked"] = 0, worker["leaves"]

    def slots_in_use(self) -> np.ndarray:
        """Numbers of the resident slots."""
        table = self.cache.table
        return np.sort(table[table >= 0])

    def resident(self) -> set[str]:
        """Every cached prefix."""
        found = set()
        for slot in self.slots_in_use():
            word, first = self.word(slot), int(self.cache.slots["d0"][slot]) // self.page
            found |= {word[: end + 1] for end in range(first, len(word))}
        return found

    def marked(self) -> set[str]:
        """Prefixes whose last page is marked in this phase."""
        found = set()
        for slot in self.slots_in_use():
            record, word = self.cache.slots[slot], self.word(slot)
            if record["epoch"] == self.cache.workers["epoch"][0]:
                found |= {word[: end + 1] for end in range(int(record["mark"]) // self.page, len(word))}
        return found

    def candidates(self) -> set[str]:
        """Leaves that the policy may take from now."""
        worker = self.cache.workers[0]
        return {self.word(slot) for slot in self.cache.order[0, : worker["unmarked"]]}


@pytest.fixture(scope="session")
def words() -> Callable[..., WordCache]:
    return WordCache
