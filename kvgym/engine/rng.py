"""The engine draws from one xorshift64* stream per worker, kept in the state, so forks repeat."""

from __future__ import annotations

import numpy as np

from kvgym.jit.door import i64, njit

STEP = np.uint64(0x9E3779B97F4A7C15)
"""Step of the counter that `heads` takes its words from."""


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


@njit()
def ones(x: np.uint64) -> int:
    """Count the ones among 64 bits (sums of neighbouring fields, as in Hacker's Delight 5-1)."""
    x -= (x >> np.uint64(1)) & np.uint64(0x5555555555555555)
    x = (x & np.uint64(0x3333333333333333)) + ((x >> np.uint64(2)) & np.uint64(0x3333333333333333))
    x = (x + (x >> np.uint64(4))) & np.uint64(0x0F0F0F0F0F0F0F0F)
    return i64((x * np.uint64(0x0101010101010101)) >> np.uint64(56))


@njit()
def coins(counter: np.uint64, tosses: int) -> int:
    """Heads among 0..63 fair coins: bits of SplitMix64's word for this counter (Steele et al. 2014)."""
    bits = (counter ^ (counter >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    bits = (bits ^ (bits >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    bits ^= bits >> np.uint64(31)
    return ones((bits >> np.uint64(1)) >> np.uint64(63 - tosses))


@njit()
def heads(counter: np.uint64, tosses: int) -> tuple[np.uint64, int]:
    """Return (next counter, heads among so many fair coins).

    A counter that starts at a random word makes words that do not wait for each other, as xorshift's would; two at a
    time, since most calls ask for at most 126 coins and a branch that nobody can foresee costs more than a word.
    """
    count = i64(0)
    while tosses > 126:
        count += coins(counter, 63) + coins(counter + STEP, 63)
        counter += STEP + STEP
        tosses -= 126
    count += coins(counter, min(tosses, 63)) + coins(counter + STEP, max(tosses - 63, 0))
    return counter + STEP + STEP, count
