"""Eviction policies: which cached tokens go when a worker's KV pool is full.

One file per policy, each ending in ``POLICY``; `kvgym.sim.policy` describes the four hooks. Keyed policies (lru, mru,
fifo, filo, lfu, slru, priority) state a rank and evict whole leaves; random_leaf, rlt, rlt_release and reuse draw at
random. `belady` is no policy to choose but an oracle: it is not listed and runs only where an oracle is allowed.
"""

from __future__ import annotations

from kvgym.registry import Registry

EVICTION = Registry(
    "eviction policy",
    {
        name: f"controllers.eviction.{name}:POLICY"
        for name in (
            "lru",
            "lfu",
            "fifo",
            "mru",
            "filo",
            "slru",
            "priority",
            "random_leaf",
            "rlt",
            "rlt_release",
            "reuse",
        )
    },
    group="kvgym.eviction",
    check="kvgym.sim.policy:not_a_policy",
    unlisted={"belady": "controllers.eviction.belady:POLICY"},
)
