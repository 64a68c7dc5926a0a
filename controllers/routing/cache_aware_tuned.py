"""Cache-aware routing as in sglang-router 0.3.2 has constants tuned on simulated GSP and ShareGPT here."""

from __future__ import annotations

from dataclasses import dataclass

from controllers.routing.cache_aware import CacheAware
from kvgym.config.options import other_default


@dataclass(eq=False)
class CacheAwareTuned(CacheAware):
    """`cache_aware` with another threshold: what SGLang's rules can do here when somebody has turned the knobs.

    Tuned by `kvgym compare tune_cache_aware` (threshold .2 .. .6 x balance_abs 16 .. 96 on the default GSP and
    ShareGPT, LRU, seeds 100 to 104): threshold 0.49 with the release's balance_abs 64 had the smallest geometric mean
    of P50 and P95 latency, 2 % below the release's constants (GSP: P50 1.59 s against 1.70 s, P95 12.9 s against
    13.2 s; ShareGPT: no difference beyond 0.5 %). balance_abs trades P50 for P95 (32: 1.95 s and 10.6 s); balance_rel
    does nothing in that range. Mind that 0.49 lies just under the default GSP's prefix share of one half: a prompt with
    less in common is not matched at all.

    Source: rules as in `cache_aware`; constants from the simulator, not from any release.

    Args: those of `TextRouter`.
    """

    cache_threshold: float = other_default(CacheAware, "cache_threshold", 0.49)
