"""Name tables check here that a plug-in from outside is what its kind has to be.

Each returns None for a fit object, else the words for "must be ...". The check of eviction policies stands beside their
type in `kvgym.engine.cache.policy`.
"""

from __future__ import annotations

import dataclasses
import inspect
import traceback
from collections.abc import Mapping
from typing import Any

from kvgym.config.names import table
from kvgym.errors import ConfigError, KVGymError, did_you_mean


def routing_controller(value: Any) -> str | None:
    """A class or function that makes objects with the methods of `kvgym.control.Controller`."""
    wanted = "a class, or a function that makes objects, with reset, act and observe (see kvgym.control.Controller)"
    return _made_with(value, ("reset", "act", "observe"), wanted)


def make_controller(name: str, options: Any, workers: int) -> Any:
    """Return a new routing controller for a fleet of so many workers.

    Raises:
        ConfigError: its constructor does not take the options or fails, what it makes is no controller, or that cannot
            play the fleet.
        UnknownNameError: there is no such controller.
    """
    factory = table("routing").load(name)
    if not isinstance(options, Mapping):
        raise ConfigError(f"options of routing controller {name!r} must be a map, got {options!r}")
    try:
        made = factory(**options)
    except (TypeError, ValueError) as error:
        hint = _option_hint(factory, options)
        raise ConfigError(f"routing controller {name!r} does not take {dict(options)}: {error}{hint}") from error
    except KVGymError:
        raise
    except Exception as error:
        raise ConfigError(controller_failure(name, "__init__", error)) from error
    if missing := [method for method in ("reset", "act", "observe") if not hasattr(made, method)]:
        raise ConfigError(f"routing controller {name!r} has no {missing[0]}(); see kvgym.control.Controller")
    if hasattr(made, "check_workers"):  # a model may be made for one size of fleet
        made.check_workers(workers)
    return made


def _option_hint(factory: Any, options: Mapping[str, Any]) -> str:
    """Return the nearest option and all options, if one of `options` is none of the factory's."""
    try:
        known = list(inspect.signature(factory).parameters)
    except (TypeError, ValueError):  # of something that is not written in Python
        return ""
    unknown = [option for option in options if option not in known]
    return f"{did_you_mean(unknown[0], known)}; options: {', '.join(known) or 'none'}" if unknown else ""


def controller_failure(name: str, method: str, error: Exception) -> str:
    """Return in one line what a routing controller has raised in a method, and where."""
    where = traceback.extract_tb(error.__traceback__)[-1]
    place = f"{where.filename}, line {where.lineno}"
    return f"routing controller {name!r} failed in {method}: {type(error).__name__}: {error} ({place})"


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
    """An object with `steps`."""
    fit = not inspect.isclass(value) and callable(getattr(value, "steps", None))
    return None if fit else "an object with steps(), such as a kvgym.costs.linear.Linear"


def cost_model(value: Any) -> str | None:
    """A dataclass whose fields are its configuration, with `steps`."""
    fit = inspect.isclass(value) and dataclasses.is_dataclass(value) and hasattr(value, "steps")
    return None if fit else "a dataclass with steps() (see kvgym.costs.base.CostModel)"


def _made_with(value: Any, methods: tuple[str, ...], wanted: str) -> str | None:
    if not callable(value) or (inspect.isclass(value) and not all(hasattr(value, name) for name in methods)):
        return wanted
    return None
