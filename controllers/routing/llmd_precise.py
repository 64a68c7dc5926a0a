"""llm-d's precise prefix scoring counts what caches really hold, scaled between the best and the worst hit."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from controllers.accounts.llmd_scores import LlmdScores
from kvgym.types import Decision


@dataclass(eq=False)
class LlmdPrecise(LlmdScores):
    """Weighted scores with hits in the first place: best hit 1, worst hit 0, no hit 0, equal hits 1.

    Hits are `Decision.hit_tokens`, so the fleet's ``signals`` should say ``observability: events``, as llm-d's index is
    fed by KV events. Weights are run 37's (2, 1, 1); run 73 had 3, 2, 2.

    Source: llm-d-inference-scheduler 0.2 to 0.3 (precise-prefix-cache-scorer), llm-d-kv-cache benchmarks 37 and 73.
    """

    def prefix_scores(self, decision: Decision, workers: np.ndarray) -> np.ndarray:
        """Return the hits, scaled between the smallest and the largest one."""
        hit = np.zeros(len(workers)) if decision.hit_tokens is None else decision.hit_tokens[workers]
        some = hit > 0
        if not some.any():
            return np.zeros(len(workers))
        low, high = hit[some].min(), hit.max()
        return np.where(some, (hit - low) / (high - low) if high > low else 1.0, 0.0)
