"""llm-d's weighted scorers share this base: queue, KV use and a prefix score, the largest weighted sum wins."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from kvgym.config.options import option
from kvgym.control import RoutingController, allowed_workers
from kvgym.types import Decision


@dataclass(eq=False)
class LlmdScores(RoutingController):
    """Largest `prefix` * prefix score + `queue` * queue score + `kv` * KV score; ties are drawn at random.

    - Queue score: (longest - own queue) / (longest - shortest queue), 1 for all if they are equal, so that one waiting
      request more can move the whole weight. KV score: the part of the KV pool that is not in use.
    - Both are engine metrics as they were scraped; nothing is added for what was sent since. Where workers report none,
      the router's own counts stand in: requests, and prompt tokens, in flight.

    Masked workers are left out. Source: kubernetes-sigs/gateway-api-inference-extension v0.5.1 (scorers, max-score
    picker), on which llm-d's scheduler is built.
    """

    prefix: float = option(2.0, "weight of the prefix score", low=0)
    queue: float = option(1.0, "weight of the queue score", low=0)
    kv: float = option(1.0, "weight of the KV score", low=0)

    def act(self, decision: Decision) -> int:
        """Return the worker of the largest sum."""
        workers = allowed_workers(decision.mask)
        queued = (decision.inflight if decision.queued is None else decision.queued)[workers]
        used = decision.inflight_tokens if decision.kv_used_tokens is None else decision.kv_used_tokens
        low, high = queued.min(), queued.max()
        score = self.queue * ((high - queued) / (high - low) if high > low else np.ones(len(workers)))
        score = score + self.kv * (1.0 - used[workers] / decision.kv_capacity_tokens[workers])
        score = score + self.prefix * self.prefix_scores(decision, workers)
        best = np.flatnonzero(score == score.max())
        worker = int(workers[best[self.rng.integers(len(best))] if len(best) > 1 else best[0]])
        self.sent(decision, worker)
        return worker

    def prefix_scores(self, decision: Decision, workers: np.ndarray) -> np.ndarray:
        """Return the prefix score of each of `workers`, 0 to 1."""
        raise NotImplementedError(f"{type(self).__name__} must define prefix_scores(decision, workers)")

    def sent(self, decision: Decision, worker: int) -> None:
        """Take note of where the request went; most know it from elsewhere."""
