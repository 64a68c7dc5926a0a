"""llm-d's affinity filter keeps the workers that hold most of the prompt; the least left to prefill wins."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from kvgym.config.options import option
from kvgym.control import RoutingController, least
from kvgym.types import Decision, FleetSpec


@dataclass(eq=False)
class AffinityLoad(RoutingController):
    """Sticky by what caches hold, least loaded by uncached prompt tokens in flight.

    1. Filter: workers that hold at least `affinity` of the prompt, if there are any; else all.
    2. Gate: all workers after all, if the least loaded of these has more than `max_penalty_s` more to prefill than the
       least loaded other one, at `prefill_tokens_per_s`; 0: never.
    3. The smallest number of uncached prompt tokens in flight, this request's included; ties are drawn at random.

    What a worker holds is `Decision.hit_tokens`: the router's own estimate, or KV events, as `signals` say. Masked
    workers are left out; a worker that has restarted has nothing in flight.

    Source: llm-d's inference scheduler of 2026 (prefix-cache-affinity-filter and token-load-scorer; Apache-2.0), guides
    of runs G15 and G16. One difference: there a request's tokens are released with the first chunk of its answer, of
    which a controller here is not told; here they drain at `prefill_tokens_per_s`. 15,926 tokens/s is what the guides
    give for Qwen3-32B on two H100: set it for another fleet.

    On the guides' own ladder of rates it holds TTFT where random routing collapses, measured and simulated alike
    (`kvgym validate llmd_sglang llmd_vllm`).
    """

    concentrates = "a prompt that a worker holds goes there until it has many seconds more to prefill than another"

    affinity: float = option(0.8, "part of the prompt that a worker must hold to be preferred", above=0, high=1)
    max_penalty_s: float = option(18.0, "surplus of prefill that opens the filter; 0: nothing does", "s", low=0)
    prefill_tokens_per_s: float = option(15_926.0, "prefill speed of a worker", "tokens/s", above=0)

    def reset(self, spec: FleetSpec, seed: int) -> None:
        """Start with nothing in flight."""
        super().reset(spec, seed)
        self.uncached_tokens = np.zeros(spec.workers)
        self._now_s = 0.0

    def act(self, decision: Decision) -> int:
        """Return the chosen worker and count the prompt's uncached tokens there."""
        drained = (decision.time_s - self._now_s) * self.prefill_tokens_per_s
        self.uncached_tokens = np.maximum(self.uncached_tokens - drained, 0.0)
        self._now_s = decision.time_s
        self.uncached_tokens[self.restarted(decision)] = 0.0
        hit = np.zeros(self.spec.workers) if decision.hit_tokens is None else decision.hit_tokens
        load = self.uncached_tokens + decision.prompt_tokens - hit
        best = least(load, self._near(decision, hit))
        worker = int(best[self.rng.integers(len(best))] if len(best) > 1 else best[0])
        self.uncached_tokens[worker] = load[worker]
        return worker

    def _near(self, decision: Decision, hit: np.ndarray) -> np.ndarray:
        """Return which workers the filter leaves, bool (workers,)."""
        near = decision.mask & (hit >= self.affinity * decision.prompt_tokens)
        others = decision.mask & ~near
        if not near.any() or not others.any() or self.max_penalty_s == 0.0:
            return near if near.any() else decision.mask
        surplus = self.uncached_tokens[near].min() - self.uncached_tokens[others].min()
        opened = surplus > self.max_penalty_s * self.prefill_tokens_per_s
        return decision.mask if opened else near
