"""Eviction policies choose which cached tokens go when a worker's KV pool is full.

One file per policy, each ending in ``POLICY``; `kvgym.engine.cache.policy` describes the four hooks. Keyed policies
(lru, mru, fifo, filo, lfu, slru, priority) state a rank and evict whole leaves; random_leaf, rlt, rlt_release and reuse
draw at random. `learned` plays a trained scorer: the path of its .json file is a name too. `belady` is no policy to
choose but an oracle: it is not listed and runs only where an oracle is allowed.
"""

from __future__ import annotations

import importlib
from typing import Any

from kvgym.config.registry import Registry


class _Policies(Registry):
    """A name table in which the path of a trained scorer is a name as well."""

    def path(self, name: str) -> str:
        """Return the ``module:attr`` that `name` stands for; raises as `Registry.path`."""
        return "controllers.eviction.learned:load" if is_scorer(name) else super().path(name)

    def load(self, name: str) -> Any:
        """Return a policy; ``FOLDER/FILE.json`` is the learned policy in that file."""
        if not is_scorer(name):
            return super().load(name)
        return importlib.import_module("controllers.eviction.learned").load(name)


def is_scorer(name: Any) -> bool:
    """Whether `name` is the path of a trained scorer."""
    return isinstance(name, str) and name.endswith(".json")


EVICTION = _Policies(
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
    check="kvgym.engine.cache.policy:not_a_policy",
    unlisted={"belady": "controllers.eviction.belady:POLICY"},
)
