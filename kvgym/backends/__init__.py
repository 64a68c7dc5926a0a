"""Backends: where requests are served. `simulated` is the compiled engine in virtual time."""

from __future__ import annotations

from kvgym.registry import Registry

BACKENDS = Registry("backend", {"simulated": "kvgym.backends.simulated:SimulatedBackend"})
"""Name -> import path of a class that follows `kvgym.backends.base.Backend`."""
