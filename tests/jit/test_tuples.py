"""Whole tuples compute the same as other named tuples, and only their name is short."""

from __future__ import annotations

from typing import NamedTuple

import numba
import numpy as np
import pytest

from kvgym.jit import door
from kvgym.jit.door import njit
from kvgym.jit.tuples import whole

pytestmark = pytest.mark.skipif(not door.JIT_ON, reason="about compiled code")


@whole
class Whole(NamedTuple):
    counts: np.ndarray
    seconds: np.ndarray


class Plain(NamedTuple):
    counts: np.ndarray
    seconds: np.ndarray


@njit()
def add(values, i):
    values.counts[i] += 1
    values.seconds[i] *= 0.5
    return values.seconds.sum()


@njit()
def add_twice(values, i):
    return add(values, i) + add(values, i + 1)


@njit()
def swapped(values):
    return values.seconds, values.counts


@njit()
def handed_back(values):
    return values


def make(kind):
    return kind(np.arange(3), np.full(3, 4.0))


@pytest.mark.parametrize("kind", [Whole, Plain])
def test_arguments__written_through_calls(kind):
    values = make(kind)
    assert add_twice(values, 0) == 10.0 + 8.0
    assert values.counts.tolist() == [1, 2, 2]
    assert values.seconds.tolist() == [2.0, 2.0, 4.0]


def test_results__fields_and_the_tuple_itself():
    values = make(Whole)
    assert [array.tolist() for array in swapped(values)] == [[4.0] * 3, [0, 1, 2]]
    back = handed_back(values)
    assert isinstance(back, Whole)
    assert back.counts.tolist() == [0, 1, 2]


def test_type__short_and_different_for_other_fields():
    kinds = [numba.typeof(make(kind)) for kind in (Whole, Plain)]
    assert len(kinds[0].name) < 25 < len(kinds[1].name)
    other = numba.typeof(Whole(np.arange(3.0), np.full(3, 4.0)))
    assert other != kinds[0]
    assert other.name != kinds[0].name
    assert numba.typeof(make(Whole)) == kinds[0]
