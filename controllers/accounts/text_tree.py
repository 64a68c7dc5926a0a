"""The router's text tree is a prefix index in characters that is trimmed by the clock."""

from __future__ import annotations

from kvgym.knowledge.prefix_index import PrefixIndex
from kvgym.types import FleetSpec


class TextTree(PrefixIndex):
    """SGLang's router tree with its eviction thread, which wakes every `evict_every_s` seconds counted from time 0.

    Args:
        spec: the fleet; one tree per worker over its forest.
        max_chars: characters that an eviction leaves to each worker; between evictions a tree may be larger.
        evict_every_s: period of the eviction, seconds.
    """

    def __init__(self, spec: FleetSpec, max_chars: int, evict_every_s: float) -> None:
        super().__init__(spec.forest, spec.workers, max_chars)
        self._every_s = evict_every_s
        self._due_s = evict_every_s

    def advance(self, time_s: float) -> None:
        """Evict if the clock has passed a multiple of the period; call it before using the tree at `time_s`.

        Nothing changes a tree between two calls, so one eviction does the work of all that were due.
        """
        if time_s >= self._due_s:
            self.evict()
            self._due_s = (time_s // self._every_s + 1) * self._every_s

    def matched_fraction(self, node: int, prompt_chars: int) -> float:
        """Return which part of a prompt of `prompt_chars` characters the tree knows up to `node` (0 if it is empty)."""
        return float(self.forest.nodes["chars_end"][node]) / prompt_chars if prompt_chars > 0 else 0.0
