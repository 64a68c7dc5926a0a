"""Name tables: a plug-in is one line `name -> "module:attr"`, resolved on first use."""

from __future__ import annotations

import difflib
import importlib
from collections.abc import Iterator, Mapping
from typing import Any

from kvgym.errors import UnknownNameError


class Registry(Mapping[str, str]):
    """Maps a name to the import path of the object that carries it.

    Nothing is imported before `load`. A name of the form ``module:attr`` is always accepted by `load`, so that a
    user's own package needs no registration.

    Args:
        kind: what the table holds, in the singular, for messages ("routing controller").
        entries: name -> ``"module:attr"``.
    """

    def __init__(self, kind: str, entries: Mapping[str, str]) -> None:
        self.kind = kind
        self._entries = dict(entries)

    def __getitem__(self, name: str) -> str:
        return self._entries[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)

    def load(self, name: str) -> Any:
        """Import and return the object called `name` (a table entry, or ``module:attr``).

        Raises:
            UnknownNameError: the name is not in the table and is no importable ``module:attr``.
        """
        path = self._entries.get(name, name if ":" in name else None)
        if path is None:
            raise UnknownNameError(self._unknown(name))
        module, _, attr = path.partition(":")
        try:
            return getattr(importlib.import_module(module), attr)
        except (ImportError, AttributeError, ValueError, TypeError) as error:
            if name in self._entries:
                raise
            raise UnknownNameError(f"cannot import {self.kind} {name!r}: {error}") from error

    def _unknown(self, name: str) -> str:
        near = difflib.get_close_matches(name, self._entries, n=1)
        hint = f"; did you mean {near[0]!r}?" if near else ";"
        return f"unknown {self.kind} {name!r}{hint} known: {', '.join(sorted(self._entries))} (or module:attr)"
