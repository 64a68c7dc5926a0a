"""llm-d's default of 2025 scores prefixes by what it has sent, blind beyond a prompt's first 16 KiB."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from controllers.accounts.llmd_scores import LlmdScores
from kvgym.config.options import option
from kvgym.knowledge.prefix_index import PrefixIndex
from kvgym.types import Decision, FleetSpec

BLOCK_CHARS = 64


@dataclass(eq=False)
class LlmdDefault(LlmdScores):
    """Weighted scores with an estimate of the caches: the matched part of a prompt's first `max_blocks` blocks.

    A block is 64 characters, so 256 of them are the first 16,384: prompts that differ only behind that look alike, and
    a worker that once got the first of them holds it for good as long as its `lru_blocks` suffice. The engine's
    evictions are unknown. Not modelled: hashes of whole blocks only (a match here counts single tokens).

    Source: kubernetes-sigs/gateway-api-inference-extension v0.5.1 to v1.0.0 (prefix-cache-scorer, its defaults), as in
    llm-d-kv-cache benchmarks 37 (weights 2, 1, 1) and 73 (1, 1, 1).
    """

    max_blocks: int = option(256, "blocks of a prompt that are looked at", low=1)
    lru_blocks: int = option(31_250, "blocks that are remembered per worker", low=1)

    def reset(self, spec: FleetSpec, seed: int) -> None:
        """Start with an empty index."""
        super().reset(spec, seed)
        self.index = PrefixIndex(spec.forest, spec.workers)

    def prefix_scores(self, decision: Decision, workers: np.ndarray) -> np.ndarray:
        """Return the matched part of what is looked at."""
        for worker in self.restarted(decision):
            self.index.remove_worker(worker)
        seen = self._seen_tokens(decision)
        return np.minimum(self.index.match_tokens(decision.node)[workers], seen) / seen

    def sent(self, decision: Decision, worker: int) -> None:
        """Remember what was looked at of the prompt; forget the oldest beyond the bound."""
        seen = self._seen_tokens(decision)
        self.index.insert(worker, decision.node, decision.time_s, seen)
        most = int(self.lru_blocks * BLOCK_CHARS * decision.prompt_tokens / max(decision.prompt_chars, 1))
        if self.index.tokens[worker] > most:
            self.index.forget(worker, most)

    def _seen_tokens(self, decision: Decision) -> int:
        """Return how many tokens of the prompt its first blocks hold, at least 1."""
        chars = self.max_blocks * BLOCK_CHARS
        return max(min(decision.prompt_tokens, int(chars * decision.prompt_tokens / max(decision.prompt_chars, 1))), 1)
