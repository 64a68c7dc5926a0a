"""Fair coins by the word."""

from __future__ import annotations

import numpy as np
import pytest

from kvgym.engine import rng


def test_ones__counts_bits() -> None:
    with np.errstate(over="ignore"):
        for value in (0, 1, 0xFF, 2**63, 2**64 - 1, 0x0123456789ABCDEF):
            assert rng.ones(np.uint64(value)) == value.bit_count()


@pytest.mark.parametrize("tosses", [0, 1, 62, 63, 64, 126, 127, 500])
def test_heads__are_half_of_the_tosses(tosses: int) -> None:
    counter, draws = np.uint64(99), []
    with np.errstate(over="ignore"):
        for _ in range(1000):
            counter, count = rng.heads(np.uint64(counter), tosses)
            draws.append(int(count))
    assert min(draws) >= 0 and max(draws) <= tosses
    assert np.mean(draws) == pytest.approx(tosses / 2, abs=5 * np.sqrt(tosses / 4 / 1000))
    assert np.var(draws) == pytest.approx(tosses / 4, rel=0.25)
