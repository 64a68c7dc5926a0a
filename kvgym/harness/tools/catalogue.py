"""Lists what can be named, with one sentence each, read from sources and files without importing them, and options."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import inspect
from collections.abc import Callable
from dataclasses import MISSING
from pathlib import Path
from typing import Any

from kvgym import ENVS
from kvgym.config.cluster import ClusterConfig
from kvgym.config.hardware import HardwareConfig
from kvgym.config.live import LiveConfig
from kvgym.config.loader import preset_folder, preset_names
from kvgym.config.names import TABLES, table
from kvgym.config.options import range_text
from kvgym.config.registry import Registry
from kvgym.config.route import RouteConfig
from kvgym.config.signals import SignalsConfig
from kvgym.config.slo import SLO
from kvgym.errors import PluginError, UnknownNameError, did_you_mean
from kvgym.harness.tools.outline import describe, module_sentence, own_sentence

Rows = list[tuple[str, str]]

FAMILIES = ("routing", "workloads", "cost models", "rewards")
"""Families of plug-ins with options of their own."""
CONFIGS = {
    "cluster": ClusterConfig,
    "hardware": HardwareConfig,
    "signals": SignalsConfig,
    "live": LiveConfig,
    "route": RouteConfig,
    "slo": SLO,
}
"""What else a configuration can set."""


def catalogue(family: str | None = None) -> dict[str, Rows]:
    """Return title -> (name, sentence) rows, of one family or of all.

    Raises:
        UnknownNameError: there is no such family.
    """
    sections: dict[str, Callable[[], Rows]] = {name: _table_rows(name) for name in TABLES}
    sections["workload presets"] = _preset_rows("workloads")
    sections["clusters"] = _preset_rows("clusters")
    sections["compare"] = _preset_rows("compare")
    sections["envs"] = lambda: [(name, module_sentence(path)) for name, path in ENVS.items()]
    options: dict[str, Callable[[], Rows]] = {name: _options_of(name) for name in FAMILIES}
    options |= {name: functools.partial(_fields, cls) for name, cls in CONFIGS.items()}
    sections |= {f"{name} fields": rows for name, rows in options.items()}
    if family is None:
        short = [*TABLES, "workload presets", "clusters", "compare", "envs", "cluster fields", "signals fields"]
        return {title: sections[title]() for title in short}
    if family not in sections:
        hint = did_you_mean(family, sections) or ";"
        raise UnknownNameError(f"nothing called {family!r} to list{hint} known: {', '.join(sections)}")
    return {family: sections[family]()}


def _table_rows(name: str) -> Callable[[], Rows]:
    def rows() -> Rows:
        registry = table(name)
        own = [(key, own_sentence(path)) for key, path in sorted(registry.items())]
        return own + [_outside_row(registry, key) for key in registry.outside()]

    return rows


def _outside_row(registry: Registry, name: str) -> tuple[str, str]:
    found = registry.outside()[name]
    packages = ", ".join(entry.package for entry in found)
    try:
        path = registry.path(name)
    except PluginError as error:
        return name, f"[{packages}] broken: {error}"
    return name, f"[{packages}] {describe(path)}"


def _preset_rows(kind: str) -> Callable[[], Rows]:
    return lambda: [(name, _first_comment(preset_folder(kind) / f"{name}.yaml")) for name in preset_names(kind)]


def _first_comment(path: Path) -> str:
    line = path.read_text(encoding="utf-8").partition("\n")[0]
    return line.removeprefix("#").strip() if line.startswith("#") else ""


def _options_of(family: str) -> Callable[[], Rows]:
    """Return what lists every option of every plug-in of `family`; these are imported for it."""

    def rows() -> Rows:
        registry, found = table(family), []
        for name in [*sorted(registry), *registry.outside()]:
            with contextlib.suppress(PluginError):  # a broken one from outside disturbs nobody; `list` says so
                found += [(f"{name}.{option}", told) for option, told in _fields(registry.load(name))]
        return found

    return rows


def _fields(config: Any) -> Rows:
    """Return (option, what it is, its range and its default) of a dataclass, or of what makes its objects."""
    given = config.keywords if isinstance(config, functools.partial) else {}
    made = config.func if isinstance(config, functools.partial) else config
    if not (inspect.isclass(made) and dataclasses.is_dataclass(made)):
        return []
    rows = []
    for field in dataclasses.fields(made):
        unit = f" [{field.metadata['unit']}]" if field.metadata.get("unit") else ""
        allowed = f"; {text}" if (text := range_text(field)) else ""
        default = given.get(field.name, "none, it must be given" if field.default is MISSING else field.default)
        rows.append((field.name, f"{field.metadata.get('help', '')}{unit}{allowed}; default {default}"))
    return rows
