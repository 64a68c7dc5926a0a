"""Lists what can be named, with one sentence each, read from sources and files without importing them."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path

from kvgym import ENVS
from kvgym.config.cluster import ClusterConfig
from kvgym.config.loader import preset_folder, preset_names
from kvgym.config.names import TABLES, table
from kvgym.config.registry import Registry
from kvgym.config.signals import SignalsConfig
from kvgym.errors import PluginError, UnknownNameError, did_you_mean
from kvgym.harness.tools.outline import describe, module_sentence

Rows = list[tuple[str, str]]


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
    sections["cluster fields"] = lambda: _fields(ClusterConfig)
    sections["signals fields"] = lambda: _fields(SignalsConfig)
    if family is None:
        return {title: rows() for title, rows in sections.items()}
    if family not in sections:
        hint = did_you_mean(family, sections) or ";"
        raise UnknownNameError(f"nothing called {family!r} to list{hint} known: {', '.join(sections)}")
    return {family: sections[family]()}


def _table_rows(name: str) -> Callable[[], Rows]:
    def rows() -> Rows:
        registry = table(name)
        own = [(key, module_sentence(path)) for key, path in sorted(registry.items())]
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


def _fields(config: type) -> Rows:
    rows = []
    for field in dataclasses.fields(config):
        unit = f" [{field.metadata['unit']}]" if field.metadata["unit"] else ""
        rows.append((field.name, f"{field.metadata['help']}{unit}; default {field.default}"))
    return rows
