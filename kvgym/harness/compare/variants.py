"""Writes a grid's shorthand out: `set` changes fields of a preset, `vary` makes an entry of every combination."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from kvgym.config.loader import apply_overrides, load_config
from kvgym.errors import ConfigError


def written_out(data: Mapping[str, Any]) -> dict[str, Any]:
    """Return a copy of the comparison `data` in which no entry has `set` or `vary`.

    ``{use: l40x4, set: {page_size: 16}, vary: {workers: [2, 4]}}`` becomes two fleets, ``l40x4 workers 2`` and
    ``l40x4 workers 4``. For a routing controller both name its options.

    Raises:
        ConfigError, UnknownNameError: a preset does not exist, or the shorthand is none.
    """
    result = dict(data)
    for kind in ("workloads", "clusters", "routing"):
        if isinstance(result.get(kind), list | tuple):
            result[kind] = [entry for given in result[kind] for entry in _entries(given, kind)]
    return result


def _entries(given: Any, kind: str) -> Iterator[Any]:
    if isinstance(given, Mapping) and isinstance(given.get("clusters"), list | tuple):
        given = {**given, "clusters": [entry for each in given["clusters"] for entry in _entries(each, "clusters")]}
    if not isinstance(given, Mapping) or not {"set", "vary"} & set(given):
        yield given
        return
    entry = {key: value for key, value in given.items() if key not in ("set", "vary")}
    if "use" not in entry:
        raise ConfigError(f"{kind}: set and vary change what `use` names, got {dict(given)}")
    fixed, varied = _map(given, "set", kind), _map(given, "vary", kind)
    for name, values in varied.items():
        if not isinstance(values, list | tuple) or not values:
            raise ConfigError(f"{kind}: vary.{name} must list values, as in [2, 4], got {values!r}")
    for values in itertools.product(*varied.values()):
        chosen = dict(zip(varied, values, strict=True))
        yield _changed(entry, {**fixed, **chosen}, chosen if varied or "name" in entry else fixed, kind)


def _map(given: Mapping[str, Any], key: str, kind: str) -> Mapping[str, Any]:
    value = given.get(key, {})
    if not isinstance(value, Mapping):
        raise ConfigError(f"{kind}: {key} must be a map of field: value, got {value!r}")
    return value


def _changed(entry: dict[str, Any], fields: Mapping[str, Any], named: Mapping[str, Any], kind: str) -> dict[str, Any]:
    """Return the entry with `fields` changed, and with `named` in its label."""
    use = entry["use"]
    label = entry.get("name") or (Path(use).stem if isinstance(use, str) else kind.removesuffix("s"))
    label = " ".join([str(label), *(f"{name} {_short(value)}" for name, value in named.items())])
    if kind == "routing":
        return {**entry, "options": {**entry.get("options", {}), **fields}, "name": label}
    plain = load_config(kind, use)
    for name, value in fields.items():
        plain = {**plain, name: value} if "." not in name else apply_overrides(plain, [f"{name}={value}"])
    return {**entry, "use": plain, "name": label}


def _short(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)
