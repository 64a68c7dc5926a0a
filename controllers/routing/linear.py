"""Linear scorers weigh prefill, decode, prefix and queue terms per worker; presets are `dynamo` and `llmd`."""

from __future__ import annotations

import dataclasses
import functools
from dataclasses import dataclass

import numpy as np

from kvgym.config.options import option
from kvgym.control import RoutingController, allowed_workers
from kvgym.errors import ConfigError
from kvgym.types import Decision, FleetSpec


@dataclass(eq=False)
class Linear(RoutingController):
    """Smallest weighted sum of five terms, or a softmax draw over the negated sums.

    - prefill_blocks: prompt blocks left to compute at the worker if it got this request: new ones after the overlap,
      and those of its requests in flight, of which the router learns the end only by their answers.
    - decode_blocks: blocks of all prompts in flight there and of this one, shared prefixes counted for each.
    - prefix: 1 - cached part of the prompt.
    - queue: requests waiting in the engine, scaled to 0..1 between the shortest and the longest queue (0 if all equal).
      Where workers report no metrics: the router's own requests in flight.
    - kv_use: used part of the KV pool; where workers report no metrics: prompt tokens in flight over its size.

    Cached tokens are `Decision.hit_tokens`, rounded down to whole blocks: the observability decides what is known;
    where it is None nothing counts as cached.

    Temperature 0: ties are drawn at random. Above 0: probabilities proportional to exp(-cost / (range * temperature)),
    range = largest - smallest cost, so a temperature means the same at any load; equal costs have equal chances.
    With stale metrics a temperature also keeps requests of one moment from all choosing the same worker.

    Masked workers are left out of everything, of the ranges too.

    Presets (`dynamo`, `llmd` in this module):

    - dynamo: weights prefill_blocks 1, decode_blocks 1, temperature 0, blocks of 16. Source: NVIDIA Dynamo's KV router,
      ai-dynamo/dynamo lib/llm/src/kv_router/scheduler.rs at db19bd2 (cost and softmax), defaults as in its
      documentation of 0.8.1. Its decode blocks count shared ones once, its ties go to the smallest tree, and it learns
      of a finished prefill by the first token: not so here.
    - llmd: weights prefix 3, queue 2, blocks of 16. Source: the default profile of llm-d in Red Hat OpenShift AI 3.4
      (documentation); scorers and picker of kubernetes-sigs/gateway-api-inference-extension v1.5.0, on which llm-d's
      scheduler is built. That project's own chart adds kv-cache utilisation with weight 2: ``kv_use: 2``.
      It sees no load but waiting requests: as long as engines admit at once, a worker that lacks the common beginning
      of all prompts scores below those that hold it, and may get nothing in a whole run (two of eight on Mooncake).

    Args:
        prefill_blocks: weight.
        decode_blocks: weight.
        prefix: weight.
        queue: weight.
        kv_use: weight.
        block_tokens: tokens per block.
        temperature: 0 for the smallest cost, above for softmax draws.

    Raises:
        ConfigError: no weight at all, a negative one, a temperature below 0 or blocks shorter than a token.
    """

    prefill_blocks: float = option(0.0, "weight of the prompt blocks left to compute", low=0)
    decode_blocks: float = option(0.0, "weight of the blocks of all prompts in flight", low=0)
    prefix: float = option(0.0, "weight of the part of the prompt that is not cached", low=0)
    queue: float = option(0.0, "weight of the engine's queue", low=0)
    kv_use: float = option(0.0, "weight of the used part of the KV pool", low=0)
    block_tokens: int = option(16, "tokens per block", "tokens", low=1)
    temperature: float = option(0.0, "0 for the smallest cost, above for softmax draws", low=0)

    def __post_init__(self) -> None:
        super().__post_init__()
        self.weights = (self.prefill_blocks, self.decode_blocks, self.prefix, self.queue, self.kv_use)
        if max(self.weights) == 0:
            names = ", ".join(spec.name for spec in dataclasses.fields(self)[: len(self.weights)])
            raise ConfigError(f"linear: one of the weights {names} must be above 0")

    def reset(self, spec: FleetSpec, seed: int) -> None:
        """Start with nothing in flight."""
        super().reset(spec, seed)
        self.prefill_tokens = np.zeros(spec.workers, np.int64)
        self._inflight: dict[int, tuple[int, int]] = {}

    def act(self, decision: Decision) -> int:
        """Return the chosen worker and count the prompt's uncached tokens as its prefill."""
        self._drop(decision.request)
        workers = allowed_workers(decision.mask)
        hit = np.zeros(len(workers), np.int64) if decision.hit_tokens is None else decision.hit_tokens[workers]
        new = decision.prompt_tokens - hit // self.block_tokens * self.block_tokens
        at = self._draw(self._costs(decision, workers, new))
        worker = int(workers[at])
        self._inflight[decision.request] = worker, int(new[at])
        self.prefill_tokens[worker] += new[at]
        return worker

    def observe(self, records: np.ndarray) -> None:
        """Take the prefill of ended requests off their workers."""
        for request in records["request"].tolist():
            self._drop(request)

    def _drop(self, request: int) -> None:
        worker, tokens = self._inflight.pop(request, (0, 0))
        self.prefill_tokens[worker] -= tokens

    def _costs(self, decision: Decision, workers: np.ndarray, new: np.ndarray) -> np.ndarray:
        inflight_tokens = decision.inflight_tokens
        queued = (decision.inflight if decision.queued is None else decision.queued)[workers]
        used = (inflight_tokens if decision.kv_used_tokens is None else decision.kv_used_tokens)[workers]
        low, high = queued.min(), queued.max()
        terms = (
            (self.prefill_tokens[workers] + new) / self.block_tokens,
            (inflight_tokens[workers] + decision.prompt_tokens) / self.block_tokens,
            new / decision.prompt_tokens,
            (queued - low) / max(high - low, 1),
            used / decision.kv_capacity_tokens[workers],
        )
        costs = np.zeros(len(workers))
        for weight, term in zip(self.weights, terms, strict=True):
            costs += weight * term
        return costs

    def _draw(self, costs: np.ndarray) -> int:
        """Return the position of the smallest cost, or of a softmax draw."""
        low, high = costs.min(), costs.max()
        if self.temperature == 0 or low == high:
            best = np.flatnonzero(costs == low)
            return int(best[self.rng.integers(len(best))] if len(best) > 1 else best[0])
        chances = np.exp((low - costs) / ((high - low) * self.temperature))
        return int(self.rng.choice(len(costs), p=chances / chances.sum()))


dynamo = functools.partial(Linear, prefill_blocks=1.0, decode_blocks=1.0)
"""NVIDIA Dynamo's cost: blocks left to prefill plus blocks in flight; any option may be given anew."""

llmd = functools.partial(Linear, prefix=3.0, queue=2.0)
"""llm-d's default profile: three parts missing prefix, two parts queue; any option may be given anew."""
