"""YAML becomes plain maps: presets by name, overrides by path, and the sources that maps name.

Presets are files ``configs/<kind>/<name>.yaml``, in the checkout or inside the installed package.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

from kvgym.config.names import table
from kvgym.config.options import build, shown, to_plain
from kvgym.errors import ConfigError, PluginError, UnknownNameError, WorkloadError, did_you_mean

WORKLOAD_FILES = (".kvgw", ".parquet")
"""How the name of a workload file ends (see `kvgym import`)."""

LOG_FILES = (".jsonl", ".json", ".csv", ".log", ".gz", ".zst", ".xz")
"""How the name of a request log may end; one that is named as a workload is imported on the way."""

_MOST_VALUES = 1_000_000
"""Values in a file with aliases, each counted as often as it is named."""


class _Loader(yaml.SafeLoader):
    """SafeLoader that also reads 1e-6 as a number (YAML 1.1 asks for a dot), and refuses a key given twice."""

    def compose_mapping_node(self, anchor: Any) -> Any:
        """Return the node of a map."""
        node = super().compose_mapping_node(anchor)
        seen: set[str] = set()
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode) and key.tag != "tag:yaml.org,2002:merge":
                if key.value in seen:
                    raise yaml.MarkedYAMLError(
                        problem=f"the key {key.value!r} is given twice", problem_mark=key.start_mark
                    )
                seen.add(key.value)
        return node


_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float", re.compile(r"^[-+]?[0-9]+(\.[0-9]*)?[eE][-+]?[0-9]+$"), list("-+0123456789")
)


def parse_yaml(text: str, where: str) -> Any:
    """Return the plain data of YAML `text`; `where` names it in the `ConfigError` for malformed text."""
    try:
        data = yaml.load(text, Loader=_Loader)
    except (yaml.YAMLError, ValueError) as error:
        raise ConfigError(f"{where} is not valid YAML: {' '.join(str(error).split())}") from error
    except RecursionError as error:
        raise ConfigError(f"{where} is not valid YAML: lists or maps lie too deep in each other") from error
    if "*" in text:
        _check_aliases(data, where)
    return data


def _check_aliases(data: Any, where: str) -> None:
    """Raise if aliases make `data` endless or enormous."""
    waiting, left = [data], _MOST_VALUES
    while waiting:
        value = waiting.pop()
        if isinstance(value, dict | list):
            waiting += value.values() if isinstance(value, dict) else value
            left -= len(value)
        if left < 0:
            raise ConfigError(f"{where} holds more than {_MOST_VALUES:,} values; does an alias contain itself?")


def load_yaml(path: str | Path) -> dict[str, Any]:
    """Return the map in a YAML file.

    Raises:
        ConfigError: the file is absent, unreadable, not YAML, or not a map.
    """
    try:
        text = Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"cannot read configuration {path}: {getattr(error, 'strerror', None) or error}") from error
    data = parse_yaml(text, str(path))
    if not isinstance(data, dict):
        raise ConfigError(f"{path} must hold a map of fields, got {shown(data)}")
    return data


def apply_overrides(data: Mapping[str, Any], overrides: Iterable[str]) -> dict[str, Any]:
    """Return a copy of `data` with each ``a.b=c`` set; numbers in a path index lists, values are YAML.

    Raises:
        ConfigError: the text has no ``=``, or the path runs through something that is no map or list.
    """
    result = to_plain(data)
    for text in overrides:
        path, equals, value = text.partition("=")
        if not equals or not path:
            raise ConfigError(f"--set takes KEY=VALUE (as in cluster.workers=8), got {text!r}")
        node: Any = result
        *parents, last = path.split(".")
        for part in parents:
            node = _child(node, part, text)
        if isinstance(node, list):
            node[_index(node, last, text)] = parse_yaml(value, text)
        elif isinstance(node, dict):
            node[last] = parse_yaml(value, text)
        else:
            raise ConfigError(f"--set {text}: {'.'.join(parents)} is {shown(node)}, it has no field {last!r}")
    return result


def _child(node: Any, part: str, text: str) -> Any:
    if isinstance(node, list):
        return node[_index(node, part, text)]
    if isinstance(node, dict):
        return node.setdefault(part, {})
    raise ConfigError(f"--set {text}: {part!r} is looked up in {shown(node)}, which is no map")


def _index(node: list[Any], part: str, text: str) -> int:
    if not (part.isascii() and part.isdigit()) or int(part) >= len(node):
        raise ConfigError(f"--set {text}: {part!r} must be a list position from 0 to {len(node) - 1}")
    return int(part)


def preset_folder(kind: str) -> Path:
    """Return the folder of presets of `kind` ("clusters", "workloads", "compare"): checkout or installed package."""
    package = Path(__file__).resolve().parent.parent
    inside = package / "configs" / kind  # where the wheel maps the top-level configs/
    return inside if inside.is_dir() else package.parent / "configs" / kind


def preset_names(kind: str) -> list[str]:
    """Return the sorted names of the presets of `kind`."""
    return sorted(path.stem for path in preset_folder(kind).glob("*.yaml"))


def load_config(kind: str, given: str | Path | Mapping[str, Any]) -> dict[str, Any]:
    """Return the plain map for a preset name, a path (ends in .yaml or .yml) or a map.

    A workload may also be a file made by `kvgym import`.

    Raises:
        ConfigError: the file cannot be read.
        UnknownNameError: no preset has this name.
    """
    if isinstance(given, Mapping):
        return dict(given)
    if not isinstance(given, str | Path):
        raise ConfigError(f"{kind}: must be a preset name, a path or a map, got {shown(given)}")
    if str(given).endswith((".yaml", ".yml")):
        return load_yaml(given)
    if kind == "workloads" and str(given).endswith((*WORKLOAD_FILES, *LOG_FILES)):
        return {"source": "imported", "path": str(given)}
    names = preset_names(kind)
    if str(given) not in names:
        if kind == "workloads" and str(given) in table(kind):
            raise UnknownNameError(
                f"{given!r} is a workload source, not a preset; give a .yaml file with `source: {given}` and its fields"
            )
        endings = ".yaml" if kind != "workloads" else f".yaml, {', '.join((*WORKLOAD_FILES, *LOG_FILES))}"
        raise UnknownNameError(
            f"no preset {str(given)[:60]!r} in configs/{kind}{did_you_mean(given, names)}; "
            f"known: {', '.join(names)} (or a path ending in {endings})"
        )
    return load_yaml(preset_folder(kind) / f"{given}.yaml")


@contextlib.contextmanager
def mistakes_in(given: Any, changes: Iterable[str] = ()) -> Iterator[None]:
    """Begin messages on wrong settings with the YAML file that was given, if `given` is the path of one.

    Args:
        given: preset name, path or map.
        changes: ``--set`` settings, which may be at fault as well.
    """
    try:
        yield
    except (ConfigError, PluginError, UnknownNameError, WorkloadError) as error:
        if not str(given).endswith((".yaml", ".yml")) or str(given) in str(error):
            raise
        with_them = " with --set " + " ".join(changes) if changes else ""
        raise type(error)(f"{given}{with_them}: {error}") from error


def resolve_workload(given: Any) -> Any:
    """Return the workload source for a preset name, a path, a map (``source`` names the class), or a source object.

    Raises:
        ConfigError: ``source`` is missing or a field is wrong.
        UnknownNameError: no preset or no source has this name.
    """
    if not isinstance(given, str | Path | Mapping):
        if not hasattr(given, "generate"):
            raise ConfigError(f"workload must be a preset name, a path, a map or a workload source, got {shown(given)}")
        return given
    data = load_config("workloads", given)
    with mistakes_in(given):
        if not isinstance(source := data.pop("source", None), str):
            raise ConfigError(
                f"workload lacks 'source' (the name of its class, see `kvgym list`); got {sorted(map(str, data))}"
            )
        return build(table("workloads").load(source), data, "workload")
