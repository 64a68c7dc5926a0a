"""Applies ``--set a.b=c`` to a comparison; ``cluster.`` and ``workload.`` reach into every preset of the grid."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from kvgym.config.loader import apply_overrides, load_config

_INTO = {"cluster.": "clusters", "workload.": "workloads"}


def override_compare(data: Mapping[str, Any], overrides: Iterable[str]) -> dict[str, Any]:
    """Return a copy of the comparison `data` with the overrides applied in order.

    ``cluster.workers=8`` changes every fleet of the grid and ``workload.rate_rps=4`` every workload: the presets are
    written out, and their labels say what was changed. Any other key is a path into the comparison itself.

    Raises:
        ConfigError, UnknownNameError: a path or preset does not exist.
    """
    result = dict(data)
    for text in overrides:
        prefix = next((prefix for prefix in _INTO if text.startswith(prefix)), None)
        if prefix is None:
            result = apply_overrides(result, [text])
            continue
        kind = _INTO[prefix]
        entries = result.get(kind, ["l40x4"] if kind == "clusters" else [])
        if isinstance(entries, list):  # anything else is reported when the comparison is built
            result[kind] = [_changed(entry, kind, text.removeprefix(prefix)) for entry in entries]
        if kind == "clusters" and isinstance(result.get("workloads"), list):
            result["workloads"] = [_own_clusters(entry, text.removeprefix(prefix)) for entry in result["workloads"]]
    return result


def _own_clusters(entry: Any, text: str) -> Any:
    """Return a workload's entry with its own fleets changed."""
    if not isinstance(entry, Mapping) or not isinstance(entry.get("clusters"), list):
        return entry
    return {**entry, "clusters": [_changed(fleet, "clusters", text) for fleet in entry["clusters"]]}


def _changed(entry: Any, kind: str, text: str) -> Any:
    item = {"use": entry} if isinstance(entry, str) else entry
    if not isinstance(item, Mapping) or "use" not in item:
        return entry
    use = item["use"]
    label = item.get("name") or (Path(use).stem if isinstance(use, str) else kind.removesuffix("s"))
    return {**item, "use": apply_overrides(load_config(kind, use), [text]), "name": f"{label} {text}"}
