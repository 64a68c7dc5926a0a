"""Every option of every plug-in and configuration refuses what is out of its range, when the object is made."""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from kvgym.config.names import table
from kvgym.config.options import range_text
from kvgym.costs.analytic import Analytic
from kvgym.errors import KVGymError
from kvgym.harness.tools.catalogue import CONFIGS, FAMILIES, catalogue

NEEDED: dict[str, dict[str, Any]] = {
    "linear": {"p0_ms": 1.0, "d0_ms": 1.0},
    "live": {"model": "m"},
    "slo": {"ttft_s": 1.0},
    "blocks": {"path": "x"},
    "imported": {"path": "x"},
}
"""What an object can't be made without."""


def options() -> Iterator[Any]:
    """Yield (what makes the object, its other arguments, an option with a range)."""
    made: dict[str, Any] = dict(CONFIGS)
    for family in FAMILIES:
        made |= {name: table(family).load(name) for name in table(family)}
    for name, factory in made.items():
        cls = factory.func if isinstance(factory, functools.partial) else factory
        for spec in dataclasses.fields(cls) if isinstance(cls, type) and dataclasses.is_dataclass(cls) else ():
            if range_text(spec):
                yield pytest.param(factory, NEEDED.get(name, {}), spec, id=f"{name}.{spec.name}")


def outside(spec: dataclasses.Field[Any]) -> list[Any]:
    low, high, above = (spec.metadata[key] for key in ("low", "high", "above"))
    beyond = [value for value in (None if low is None else low - 1, above, None if high is None else high * 2 + 1)]
    return [value for value in beyond if value is not None] + [math.nan, math.inf, -math.inf, 10**400, "0.5", True, 1j]


@pytest.mark.parametrize(("factory", "needed", "spec"), list(options()))
def test_option__refuses_what_is_out_of_range(
    factory: Callable[..., Any], needed: dict[str, Any], spec: dataclasses.Field[Any]
) -> None:
    for value in outside(spec):
        with pytest.raises(KVGymError, match=f"{spec.name} must be a (whole )?number [<>]"):
            factory(**{**needed, spec.name: value})


def test_option__whole_numbers_and_named_values() -> None:
    router = table("routing")
    for options, message in (
        ({"max_tree_chars": 2.5}, "max_tree_chars must be a whole number >= 1, got 2.5"),
        ({"cache_threshold": 1.01}, "cache_threshold must be a number >= 0 and <= 1, got 1.01"),
    ):
        with pytest.raises(KVGymError, match=message):
            router.load("cache_aware")(**options)
    with pytest.raises(KVGymError, match=r"keep must be at most parts \(32\), got 33"):
        router.load("lbgr_release")(keep=33)
    with pytest.raises(KVGymError, match=r"one of the weights prefill_blocks, .* must be above 0"):
        router.load("llmd")(prefix=0, queue=0)
    with pytest.raises(KVGymError, match="load must be one of 'requests', 'tokens', got 'work'"):
        router.load("power_of_two")(load="work")
    assert router.load("session_affinity")(stay=2).near == 1


@pytest.mark.parametrize("family", ["routing", "eviction", "workloads", "costs", "rewards", "backends"])
def test_list__a_sentence_for_each_name(family: str) -> None:
    rows = catalogue(family)[family]
    assert all(sentence for _, sentence in rows)
    assert len({sentence for _, sentence in rows}) == len(rows)


@pytest.mark.parametrize("name", [*FAMILIES, *CONFIGS])
def test_list__every_option_says_what_it_is(name: str) -> None:
    (rows,) = catalogue(f"{name} fields").values()
    assert rows and all(not told.startswith((";", " [")) for _, told in rows)


def test_analytic__its_coefficients_have_ranges() -> None:
    assert all(range_text(spec) for spec in dataclasses.fields(Analytic))
