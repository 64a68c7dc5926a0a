"""What a plug-in of each kind has to be: checks that the name tables make on what comes from outside.

Each returns None for a fit object, else the words for "must be ...". The check of eviction policies stands beside their
type in `kvgym.sim.policy`.
"""

from __future__ import annotations

import dataclasses
import inspect
from typing import Any

from kvgym.errors import ConfigError


def routing_controller(value: Any) -> str | None:
    """A class or function that makes objects with the methods of `controllers.base.Controller`."""
    wanted = "a class, or a function that makes objects, with reset, act and observe (see controllers.base.Controller)"
    return _made_with(value, ("reset", "act", "observe"), wanted)


def check_controller(made: Any, name: str) -> None:
    """Raise a `ConfigError` if what routing controller `name` has made lacks a method of one."""
    if missing := [method for method in ("reset", "act", "observe") if not hasattr(made, method)]:
        raise ConfigError(f"routing controller {name!r} has no {missing[0]}(); see controllers.base.Controller")


def backend(value: Any) -> str | None:
    """A class or function that makes objects with the methods of `kvgym.backends.base.Backend`."""
    wanted = "a class, or a function that makes objects, that follows kvgym.backends.base.Backend"
    return _made_with(value, ("run_to_decision", "apply", "completions", "records"), wanted)


def reward_term(value: Any) -> str | None:
    """A function term(before, after, records) -> float, or a class of such objects."""
    return None if callable(value) else "a function or a class of such objects (see kvgym.envs.rewards)"


def workload_source(value: Any) -> str | None:
    """A dataclass whose fields are its configuration, with `generate`."""
    fit = inspect.isclass(value) and dataclasses.is_dataclass(value) and hasattr(value, "generate")
    return None if fit else "a dataclass with generate(seed, page_size) (see kvgym.workloads.base.WorkloadSource)"


def cost_preset(value: Any) -> str | None:
    """An object with `write`."""
    fit = not inspect.isclass(value) and callable(getattr(value, "write", None))
    return None if fit else "an object with write(options), such as a kvgym.costs.linear.Linear"


def cost_model(value: Any) -> str | None:
    """A dataclass whose fields are its configuration, with `write`."""
    fit = inspect.isclass(value) and dataclasses.is_dataclass(value) and hasattr(value, "write")
    return None if fit else "a dataclass with write(options) (see kvgym.costs.base.CostModel)"


def _made_with(value: Any, methods: tuple[str, ...], wanted: str) -> str | None:
    if not callable(value) or (inspect.isclass(value) and not all(hasattr(value, name) for name in methods)):
        return wanted
    return None
