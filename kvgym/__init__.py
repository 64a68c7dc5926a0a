"""Gymnasium environments for routing requests over LLM workers that each have their own prefix cache."""

from __future__ import annotations

import gymnasium

from kvgym.errors import KVGymError

__all__ = ["KVGymError", "__version__", "register_envs"]
__version__ = "0.1.0"

ENVS: dict[str, str] = {
    # One step routes one arriving request; every keyword has a default (see the class docstring).
    "kvgym/Routing-v0": "kvgym.envs.routing:RoutingEnv",
}
"""Environment id -> entry point; a string, so that nothing is compiled before `gymnasium.make`."""


def register_envs() -> None:
    """Register kvgym's environments with Gymnasium; ids that are registered already are left alone."""
    for name, entry_point in ENVS.items():
        if name not in gymnasium.registry:
            gymnasium.register(id=name, entry_point=entry_point)


register_envs()
