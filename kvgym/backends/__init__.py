"""Backends: where requests are served. `simulated` is the compiled engine in virtual time."""

from __future__ import annotations

from kvgym.registry import Registry

BACKENDS = Registry(
    "backend",
    {"simulated": "kvgym.backends.simulated:SimulatedBackend"},
    group="kvgym.backends",
    check="kvgym.contracts:backend",
)
"""Name -> import path of a class that follows `kvgym.backends.base.Backend`."""
