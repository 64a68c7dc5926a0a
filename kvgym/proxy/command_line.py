"""Makes a router's settings of a file, options and changes, and reads its workers anew."""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from kvgym.config.loader import apply_overrides, load_yaml
from kvgym.config.options import build
from kvgym.config.route import RouteConfig
from kvgym.errors import ConfigError, MissingDependencyError


def make_settings(file: Path | None, given: Mapping[str, Any], changes: list[str]) -> RouteConfig:
    """Return the settings of `file`, changed by the options that are not None, then by ``name=value`` texts.

    Raises:
        ConfigError: a setting is wrong, or no worker is named.
        MissingDependencyError: the extra `route` is not installed.
    """
    if missing := [name for name in ("aiohttp", "prometheus_client") if importlib.util.find_spec(name) is None]:
        raise MissingDependencyError(f"kvgym route needs {missing[0]}: pip install 'kvgym[route]'")
    data = load_yaml(file) if file is not None else {}
    data |= {name: value for name, value in given.items() if value is not None}
    settings = build(RouteConfig, apply_overrides(data, changes), "route")
    if not settings.workers:
        raise ConfigError("name at least one server: --worker http://host:port, or workers: [...] in the file")
    if doubled := {url for url in settings.workers if settings.workers.count(url) > 1}:
        raise ConfigError(f"worker {min(doubled)} is named twice")
    return settings


def reloaded(file: Path | None, settings: RouteConfig) -> list[str]:
    """Return the workers that the file names now; without a file those of the settings.

    Raises:
        ConfigError: the file is wrong or names none.
    """
    if file is None:
        return list(settings.workers)
    workers = load_yaml(file).get("workers")
    if not isinstance(workers, list) or not workers:
        raise ConfigError(f"{file} names no workers")
    return [str(url) for url in workers]


def ready_line(facts: Mapping[str, Any]) -> str:
    """Return what is said when the router listens."""
    line = f"{facts['routing']} on {facts['url']}, "
    if "processes" in facts:
        return line + f"{facts['processes']} processes: each sees its own traffic only, as `signals.routers` foretells"
    return line + f"{facts['workers_up']} of {facts['workers']} workers up"
