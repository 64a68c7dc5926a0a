"""Options declare fields of dataclasses: default, help, unit and range; one builder makes and checks such objects.

Every mistake is a `ConfigError` that says where it sits, what came and what is allowed.
"""

from __future__ import annotations

import dataclasses
import functools
import sys
import types
import typing
from collections.abc import Mapping
from dataclasses import field
from pathlib import Path
from typing import Any, Literal, TypeVar, Union

from kvgym.errors import ConfigError, KVGymError, did_you_mean

T = TypeVar("T")

_MOST = 1e13
"""No option with a range is larger: far above what makes sense, and products of such numbers are finite."""


def option(
    default: Any, help: str, unit: str = "", low: float | None = None, high: float | None = None,
    above: float | None = None,
) -> Any:  # fmt: skip
    """Return a dataclass field with `default`, its documentation (`kvgym list` prints it) and its range.

    Args:
        default: value where none is given.
        help: what it is.
        unit: of the number.
        low: smallest value allowed; also of each entry of a tuple.
        high: largest value allowed, likewise.
        above: the value must exceed this.
    """
    return field(default=default, metadata={"help": help, "unit": unit, "low": low, "high": high, "above": above})


def other_default(base: type, name: str, default: Any) -> Any:
    """Return the field `name` of the dataclass `base`, from which another one inherits, with another default."""
    return field(default=default, metadata=dict(base.__dataclass_fields__[name].metadata))  # type: ignore[attr-defined]


def check_options(config: Any, error: type[KVGymError] = ConfigError) -> None:
    """Check every option of the dataclass object `config`: `__post_init__` calls it before its own checks.

    Numbers must be in their option's range, whole where the option's type is; of a Literal one of its values. None
    always passes where the type allows it, and so does what is neither (a map of regions).

    Args:
        config: the object.
        error: what is raised where a value is not allowed.
    """
    hints = _hints(config.__class__)
    for spec in dataclasses.fields(config):
        hint, value = hints[spec.name], getattr(config, spec.name)
        if typing.get_origin(hint) is Literal and value not in typing.get_args(hint):
            raise error(f"{spec.name} must be one of {', '.join(map(repr, typing.get_args(hint)))}, got {value!r}")
        if allowed := allowed_text(spec, hint):
            for number in value if isinstance(value, tuple) else (value,):
                if not _allowed(spec, hint, number):
                    raise error(f"{spec.name} must be {allowed}, got {str(number)[:60]}")


@functools.cache
def _hints(cls: Any) -> dict[str, Any]:
    """Return the types of a dataclass's fields; looking them up takes longer than making the object."""
    return typing.get_type_hints(cls)


def range_text(spec: dataclasses.Field[Any]) -> str:
    """Return the range of an option as text (">= 1 and <= 10"); empty: it has none."""
    words = (("above", ">"), ("low", ">="), ("high", "<="))
    given = ((word, spec.metadata.get(key)) for key, word in words)
    return " and ".join(f"{word} {_number(bound)}" for word, bound in given if bound is not None)


def allowed_text(spec: dataclasses.Field[Any], hint: Any) -> str:
    """Return what a number must be ("a whole number >= 1"); empty: everything is allowed."""
    if not (bounds := range_text(spec)):
        return ""
    return f"a {'whole number' if _whole(hint) else 'number'} {bounds}"


def _whole(hint: Any) -> bool:
    """Whether numbers of this type are whole ones: int, tuples of them, or none."""
    parts = set(typing.get_args(hint)) - {type(None), Ellipsis} or {hint}
    return all(part is int or (typing.get_args(part) and _whole(part)) for part in parts)


def _allowed(spec: dataclasses.Field[Any], hint: Any, value: Any) -> bool:
    if value is None or isinstance(value, Mapping):  # maps have checks of their own
        return isinstance(value, Mapping) or type(None) in typing.get_args(hint)
    return isinstance(value, int if _whole(hint) else int | float) and _inside(spec.metadata, value)


def _number(bound: float) -> str:
    return f"{bound:,}" if isinstance(bound, int) else f"{bound:g}"


def _inside(bounds: Mapping[str, Any], value: Any) -> bool:
    """Whether a number keeps the bounds that are given; nan, infinity and what would overflow in a product do not."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) <= _MOST:
        return False
    low, high, above = bounds["low"], bounds["high"], bounds["above"]
    return (low is None or value >= low) and (high is None or value <= high) and (above is None or value > above)


def build(cls: type[T], data: Any, where: str = "") -> T:
    """Make a dataclass from a plain mapping, checking keys and types at every depth.

    Args:
        cls: a dataclass whose fields are plain types, Literals, tuples, mappings or dataclasses.
        data: mapping field -> value, as it comes from YAML.
        where: path of `data` in its file ("cluster"), for messages.

    Raises:
        ConfigError: an unknown or missing key, or a value of the wrong type or range.
    """
    label = where or cls.__name__
    if not isinstance(data, Mapping):
        raise ConfigError(f"{label} must be a map of fields, got {shown(data)}")
    fields = {f.name: f for f in dataclasses.fields(cls) if f.init}  # type: ignore[arg-type]
    for key in data:
        if key not in fields:
            raise ConfigError(
                f"unknown key {key!r} in {label}{did_you_mean(key, fields)}; allowed: {', '.join(fields)}"
            )
    hints = typing.get_type_hints(cls)
    values = {key: _convert(hints[key], value, f"{where}.{key}" if where else key) for key, value in data.items()}
    for name, spec in fields.items():
        required = spec.default is dataclasses.MISSING and spec.default_factory is dataclasses.MISSING
        if required and name not in values:
            raise ConfigError(f"{label} lacks {name!r}")
    try:
        made = cls(**values)
        check_options(made)  # for classes, perhaps of a plug-in, that do not do so themselves
        return made
    except KVGymError as error:
        raise type(error)(f"{label}: {error}") from error


def to_plain(value: Any) -> Any:
    """Return `value` (dataclasses at any depth) as dicts, lists, numbers and strings, ready for YAML or JSON."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {f.name: to_plain(getattr(value, f.name)) for f in dataclasses.fields(value) if f.init}
    if isinstance(value, Mapping):
        return {key: to_plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [to_plain(item) for item in value]
    return str(value) if isinstance(value, Path) else value


def _convert(hint: Any, value: Any, where: str) -> Any:
    origin, args = typing.get_origin(hint), typing.get_args(hint)
    if hint is Any:
        return value
    if origin in (Union, types.UnionType):
        return _convert_union(args, value, where)
    if origin is Literal:
        if value not in args:
            raise ConfigError(f"{where} must be one of {', '.join(map(repr, args))}, got {shown(value)}")
        return value
    if origin in (tuple, list):
        return _convert_sequence(origin, args, value, where)
    if isinstance(origin or hint, type) and issubclass(origin or hint, Mapping):
        if not isinstance(value, Mapping):
            raise ConfigError(f"{where} must be a map, got {shown(value)}")
        item = args[1] if args else Any
        return {key: _convert(item, entry, f"{where}.{key}") for key, entry in value.items()}
    if isinstance(value, hint) and not isinstance(value, bool) | (hint is float):
        return value
    if dataclasses.is_dataclass(hint):
        return build(typing.cast(type, hint), value, where)
    return _convert_scalar(hint, value, where)


def _convert_scalar(hint: Any, value: Any, where: str) -> Any:
    if hint is Path and isinstance(value, str):
        return Path(value)
    if hint is float and isinstance(value, int | float) and not isinstance(value, bool):
        if not abs(value) <= sys.float_info.max:
            raise ConfigError(f"{where} must be a finite number, got {str(value)[:60]}")
        return float(value)
    if hint is bool and isinstance(value, bool):
        return value
    names = {int: "a whole number", float: "a number", str: "a string", bool: "true or false", type(None): "none"}
    raise ConfigError(f"{where} must be {names.get(hint, hint.__name__)}, got {shown(value)}")


def _convert_union(args: tuple[Any, ...], value: Any, where: str) -> Any:
    # A map can only mean the dataclass or the dict among the alternatives, a list only the sequence: choosing by shape
    # first makes the message that of the mistake itself, not "none of the alternatives".
    shaped = [arg for arg in args if arg is not type(None) and _shape(arg) == _shape_of(value)]
    if value is None and type(None) in args:
        return None
    if len(shaped) == 1:
        return _convert(shaped[0], value, where)
    errors = []
    for arg in shaped or args:
        try:
            return _convert(arg, value, where)
        except ConfigError as error:
            errors.append(str(error))
    raise ConfigError("; or ".join(error for error in errors if not error.startswith(f"{where} must be none")))


def _shape(hint: Any) -> str:
    base = typing.get_origin(hint) or hint
    if base in (tuple, list):
        return "list"
    if dataclasses.is_dataclass(base) or (isinstance(base, type) and issubclass(base, Mapping)):
        return "map"
    return "scalar"


def _shape_of(value: Any) -> str:
    if isinstance(value, list | tuple):
        return "list"
    return "map" if isinstance(value, Mapping) else "scalar"


def _convert_sequence(origin: Any, args: tuple[Any, ...], value: Any, where: str) -> Any:
    if not isinstance(value, list | tuple):
        raise ConfigError(f"{where} must be a list, got {shown(value)}")
    if origin is tuple and args and args[-1] is not Ellipsis:
        if len(value) != len(args):
            raise ConfigError(f"{where} must have {len(args)} entries, got {len(value)}")
        hints = list(args)
    else:
        hints = [args[0] if args else Any] * len(value)
    return origin(_convert(hint, item, f"{where}.{i}") for i, (hint, item) in enumerate(zip(hints, value, strict=True)))


def shown(value: Any) -> str:
    """Return the kind of `value` and its beginning, for messages."""
    kind = {"map": "a map", "list": "a list"}.get(_shape_of(value), type(value).__name__)
    return f"{kind} ({str(value)[:60]!r})" if value is not None else "nothing"
