"""Finds the name table of each plug-in family by string, so that no layer imports one above it or `controllers`."""

from __future__ import annotations

import importlib

from kvgym.config.registry import Registry

TABLES: dict[str, str] = {
    "workloads": "kvgym.workloads:WORKLOADS",
    "routing": "controllers.routing:ROUTING",
    "eviction": "controllers.eviction:EVICTION",
    "costs": "kvgym.costs:COSTS",
    "cost models": "kvgym.costs:MODELS",
    "backends": "kvgym.backends:BACKENDS",
    "rewards": "kvgym.envs.rewards:REWARDS",
}
"""Family -> where its `Registry` lives."""


def table(family: str) -> Registry:
    """Return the name table of `family` (a key of `TABLES`)."""
    module, _, attribute = TABLES[family].partition(":")
    return getattr(importlib.import_module(module), attribute)
