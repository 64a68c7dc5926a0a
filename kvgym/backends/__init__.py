"""Backends serve requests: `simulated`, the compiled engine in virtual time, or `sglang`, real servers."""

from __future__ import annotations

from kvgym.config.registry import Registry

BACKENDS = Registry(
    "backend",
    {
        "simulated": "kvgym.backends.simulated:SimulatedBackend",
        "sglang": "kvgym.backends.sglang.backend:LiveBackend",
    },
    group="kvgym.backends",
    check="kvgym.config.contracts:backend",
)
"""Name -> import path of a class that follows `kvgym.backends.base.Backend`."""
