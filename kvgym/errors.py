"""Exceptions say what came, what is allowed and what to do; every one is a KVGymError.

Each subclass is also the builtin that a caller would expect (`ValueError`, `RuntimeError`, `ImportError`),
so that user code may catch either.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class KVGymError(Exception):
    """Base of every error that kvgym raises on purpose."""


class ConfigError(KVGymError, ValueError):
    """Raised when a configuration key, value or file is not acceptable."""


class WorkloadError(KVGymError, ValueError):
    """Raised when a workload cannot be generated or a trace row is malformed (file, line and field are named)."""


class UnknownNameError(KVGymError, ValueError):
    """Raised when a registered name does not exist; lists the known names and the nearest one."""


class PluginError(KVGymError, ImportError):
    """Raised when a plug-in cannot be imported, is of the wrong kind, or shares its name with another one."""


class SimulationError(KVGymError, RuntimeError):
    """Raised when the simulator is used out of order or an invariant of its state is broken."""


class MissingDependencyError(KVGymError, ImportError):
    """Raised when an optional package is absent; names the extra that brings it."""


class ResultsError(KVGymError, RuntimeError):
    """Raised when an output folder cannot be written or holds results of another run."""


class BackendError(KVGymError, RuntimeError):
    """Raised when a live server cannot be started, reached or used; names its address and what to check."""


def did_you_mean(name: object, known: Iterable[str]) -> str:
    """Return "; did you mean 'NEAREST'?" if a known name is near to `name`, else an empty string."""
    near = difflib.get_close_matches(str(name), list(known), n=1)
    return f"; did you mean {near[0]!r}?" if near else ""
