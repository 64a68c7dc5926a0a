"""A plug-in is one line `name -> "module:attr"` in a name table, or an entry point of an installed package."""

from __future__ import annotations

import functools
import importlib
import importlib.metadata
import traceback
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from kvgym.errors import ConfigError, PluginError, UnknownNameError, did_you_mean


@dataclass(frozen=True)
class Outside:
    """A name that an installed package brings by an entry point.

    Attributes:
        path: what the entry point says, ``module:attr``.
        package: the package's name and version, ``kvgym-demo 1.0``.
    """

    path: str
    package: str


@functools.cache
def _entry_points(group: str) -> dict[str, tuple[Outside, ...]]:
    """Return name -> what installed packages bring under it; the metadata is read once per process."""
    found: dict[str, list[Outside]] = {}
    for point in importlib.metadata.entry_points(group=group):
        dist = point.dist
        package = f"{dist.name} {dist.version}" if dist is not None else "an unknown package"
        found.setdefault(point.name, []).append(Outside(point.value.partition("[")[0].strip(), package))
    return {name: tuple(sorted(set(several), key=lambda o: (o.package, o.path))) for name, several in found.items()}


class Registry(Mapping[str, str]):
    """Maps a name to the import path of the object that carries it.

    The mapping holds kvgym's own names. `load` also knows those of installed packages (`outside`) and accepts
    ``module:attr``, so that a user's own module needs no registration. Nothing is imported before `load`, and nothing
    but what is asked for: a broken plug-in disturbs nobody who does not use it.

    Args:
        kind: what the table holds, in the singular, for messages ("routing controller").
        entries: name -> ``"module:attr"``.
        group: entry-point group of outside packages.
        check: ``"module:function"`` that returns what an object of this kind has to be if its argument is none, else
            None; it sees what comes from outside only.
        unlisted: more entries, which load but are not iterated over: they need what only few callers have.
    """

    def __init__(
        self, kind: str, entries: Mapping[str, str], group: str, check: str, unlisted: Mapping[str, str] | None = None
    ) -> None:
        self.kind = kind
        self.group = group
        self._entries = {**entries, **(unlisted or {})}
        self._listed = tuple(entries)
        self._check = check

    def __getitem__(self, name: str) -> str:
        return self._entries[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._listed)

    def __len__(self) -> int:
        return len(self._listed)

    def outside(self) -> dict[str, tuple[Outside, ...]]:
        """Return name -> what installed packages bring under it, sorted by name; more than one is a clash."""
        return dict(sorted(_entry_points(self.group).items()))

    def path(self, name: str) -> str:
        """Return the ``module:attr`` that `name` stands for.

        Raises:
            ConfigError: `name` is no text.
            PluginError: several packages, or kvgym and a package, bring this name.
            UnknownNameError: nobody does, and it is no ``module:attr``.
        """
        if not isinstance(name, str):
            raise ConfigError(f"{self.kind} must be a name or module:attr, got {name!r}")
        if ":" in name and name not in self._entries:
            return name
        outside = _entry_points(self.group).get(name, ())
        owners = [f"{found.package} ({found.path})" for found in outside]
        if name in self._entries:
            owners.insert(0, f"kvgym ({self._entries[name]})")
        if not owners:
            raise UnknownNameError(self._unknown(name))
        if len(owners) > 1:
            raise PluginError(
                f"{self.kind} {name!r} is ambiguous: {' and '.join(owners)} bring it; name one as module:attr, or "
                "uninstall the other package"
            )
        return self._entries[name] if name in self._entries else outside[0].path

    def load(self, name: str) -> Any:
        """Import and return the object called `name` (kvgym's, an installed package's, or ``module:attr``).

        Raises:
            ConfigError, UnknownNameError: as `path`.
            PluginError: as `path`, or a plug-in cannot be imported or is something else than what its kind needs.
        """
        path = self.path(name)
        if name in self._entries:
            return _import(path)
        where = f"{self.kind} {_shown(name)}"
        if found := _entry_points(self.group).get(name):
            where += f" of {found[0].package} ({path})"
        try:
            value = _import(path)
        except (Exception, SystemExit) as error:  # a plug-in may raise anything
            raise PluginError(f"cannot import {where}: {_told(error)}") from error
        if (wanted := _import(self._check)(value)) is not None:
            raise PluginError(f"{where} must be {wanted}, got {_shown(value)}")
        return value

    def _unknown(self, name: str) -> str:
        known = sorted({*self._entries, *_entry_points(self.group)})
        hint = did_you_mean(name, known) or ";"
        return f"unknown {self.kind} {_shown(name)}{hint} known: {', '.join(known)} (or module:attr)"


def _import(path: str) -> Any:
    module, _, attributes = path.partition(":")
    if not module or not attributes:
        raise ImportError(f"{path!r} is not of the form module:attr")
    return functools.reduce(getattr, attributes.split("."), importlib.import_module(module))


def _told(error: BaseException) -> str:
    """Return an exception in one line: type, message and the deepest line of Python that it passed."""
    text = " ".join(str(error).split())
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if not frame.filename.startswith("<frozen")]
    place = f" ({frames[-1].filename}, line {frames[-1].lineno})" if frames[1:] and frames[-1].lineno else ""
    if place and frames[-1].filename in (__file__, importlib.__file__):
        place = ""
    return f"{type(error).__name__}: {text if len(text) <= 300 else f'{text[:297]}...'}{place}"


def _shown(value: Any) -> str:
    text = " ".join(repr(value).split())
    return text if len(text) <= 80 else f"{text[:77]}..."
