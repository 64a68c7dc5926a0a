"""The engine's random numbers: one xorshift64* stream per worker, kept in the state, so forks repeat."""

from __future__ import annotations

import numpy as np

from kvgym.jit import i64, njit


@njit()
def next_word(state: np.uint64) -> tuple[np.uint64, np.uint64]:
    """Return (next state, 64 random bits) of xorshift64* (Vigna 2016); the state is never zero."""
    state ^= state >> np.uint64(12)
    state ^= state << np.uint64(25)
    state ^= state >> np.uint64(27)
    return state, state * np.uint64(2685821657736338717)


@njit()
def below(bits: np.uint64, n: int) -> int:
    """Map the upper 32 of 64 random bits to 0..n-1 (n < 2**31; bias below n / 2**32)."""
    return i64(((bits >> np.uint64(32)) * np.uint64(n)) >> np.uint64(32))
