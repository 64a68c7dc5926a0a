"""kvgym has Gymnasium environments for routing requests over LLM workers that each have a prefix cache."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

import gymnasium

from kvgym.errors import KVGymError

if TYPE_CHECKING:
    from kvgym.harness.compare.evaluate import evaluate

__all__ = ["KVGymError", "__version__", "evaluate", "register_envs"]
__version__ = "0.1.0"

ENVS: dict[str, str] = {
    # One step routes one arriving request; every keyword has a default (see the class docstring).
    "kvgym/Routing-v0": "kvgym.envs.routing:RoutingEnv",
    # One step evicts one leaf of a full cache; a named controller routes.
    "kvgym/Eviction-v0": "kvgym.envs.eviction:EvictionEnv",
    # One step is whichever of the two comes next.
    "kvgym/Joint-v0": "kvgym.envs.joint:JointEnv",
}
"""Environment id -> entry point; a string, so that nothing is compiled before `gymnasium.make`."""


VECTOR_ENVS: dict[str, str] = {"kvgym/Routing-v0": "kvgym.envs.vector:RoutingVectorEnv"}
"""Environment id -> entry point for `gymnasium.make_vec`."""


def register_envs() -> None:
    """Register kvgym's environments with Gymnasium; ids that are registered already are left alone."""
    for name, entry_point in ENVS.items():
        if name not in gymnasium.registry:
            gymnasium.register(id=name, entry_point=entry_point, vector_entry_point=VECTOR_ENVS.get(name))


def __getattr__(name: str) -> Any:
    """Import `evaluate` on first use: it brings the harness and with it the engine."""
    if name == "evaluate":
        return importlib.import_module("kvgym.harness.compare.evaluate").evaluate
    raise AttributeError(f"module 'kvgym' has no attribute {name!r}")


register_envs()
