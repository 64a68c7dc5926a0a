"""LMetric multiplies new prefill tokens by batch size; the smallest product wins, and nothing is to be tuned."""

from __future__ import annotations

import numpy as np

from kvgym.control import RoutingController, allowed_workers
from kvgym.types import Decision


class LMetric(RoutingController):
    """Smallest (prompt tokens - cached tokens) * (requests in flight + 1).

    Cached tokens are `Decision.hit_tokens`, so the observability decides what is known of the caches; where it is None
    nothing counts as cached. The batch size is the router's own number of requests in flight, with this one.

    Ties: fewer in flight, then fewer new tokens, then the lowest id. Masked workers are left out.

    Source: "LMetric: Simple is Better" (arXiv 2603.15202) and its port in SGLang's gateway (sgl-model-gateway
    policies/lmetric.rs at acaa759), which counts characters against its own text tree; here tokens. No constants.
    """

    def act(self, decision: Decision) -> int:
        """Return the worker of smallest product."""
        workers = allowed_workers(decision.mask)
        load = decision.inflight[workers] + 1
        new = np.full(len(workers), decision.prompt_tokens)
        if decision.hit_tokens is not None:
            new = np.maximum(new - decision.hit_tokens[workers], 0)
        return int(workers[np.lexsort((workers, new, load, new * load))[0]])
