"""Checks of controllers' options: a value out of range is an error when the controller is made, not in mid-run."""

from __future__ import annotations

from typing import Any

from kvgym.errors import ConfigError

_MOST = 1e12
"""Far above what makes sense; products of more overflow, which would be seen only in mid-run."""


def number(name: str, value: Any, low: float, high: float = _MOST, *, open_low: bool = False) -> None:
    """Check that `value` is a number in low..high (`open_low`: above `low`).

    Raises:
        ConfigError: it is not.
    """
    fit = not isinstance(value, bool) and isinstance(value, int | float)
    if not fit or not low <= value <= high or (open_low and value == low):
        at_most = f" and <= {high:g}" if high < _MOST or (fit and value > high) else ""
        bounds = f"{'>' if open_low else '>='} {low:g}{at_most}"
        raise ConfigError(f"{name} must be a number {bounds}, got {value!r}")


def whole(name: str, value: Any, low: int) -> None:
    """Check that `value` is a whole number of at least `low`, and fits 64 bits.

    Raises:
        ConfigError: it is not.
    """
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value < 1 << 62:
        raise ConfigError(f"{name} must be a whole number >= {low}, got {value!r}")
