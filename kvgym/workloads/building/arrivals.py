"""Requests arrive with Poisson or Gamma gaps, or at recorded stamps that sit on coarse ticks."""

from __future__ import annotations

import numpy as np

from kvgym.errors import WorkloadError

LOWEST_RPS, HIGHEST_RPS, HIGHEST_CV = 1e-6, 1e9, 1e3
"""One request in eleven days, below which times lose the precision of their milliseconds; and what nobody needs."""


def open_loop(count: int, rate_rps: float | None, cv: float, rng: np.random.Generator) -> np.ndarray:
    """Return `count` arrival times in seconds, float64, the first at 0, gaps independent.

    Args:
        count: number of arrivals.
        rate_rps: mean rate, requests per second; None: everything arrives at 0.
        cv: coefficient of variation of the gaps; 1 is Poisson, above it Gamma bursts, 0 an even spacing.
        rng: the "arrivals" stream of the seed.
    """
    check_rate(rate_rps, cv)
    if rate_rps is None:
        return np.zeros(count)
    return np.concatenate(([0.0], np.cumsum(_gaps(max(count - 1, 0), 1.0 / rate_rps, cv, rng))))[:count]


def check_rate(rate_rps: float | None, cv: float) -> None:
    """Raise a `WorkloadError` if these are no rate and no coefficient of variation of arrivals."""
    if rate_rps is None:
        return
    if not LOWEST_RPS <= rate_rps <= HIGHEST_RPS or not 0 <= cv <= HIGHEST_CV:
        raise WorkloadError(
            f"rate_rps must be > 0 (at least {LOWEST_RPS}, at most {HIGHEST_RPS:g}; null: all at once) and cv in "
            f"0..{HIGHEST_CV:g}, got rate_rps {rate_rps} and cv {cv}"
        )


def _gaps(count: int, mean_s: float, cv: float, rng: np.random.Generator) -> np.ndarray:
    if cv == 0:
        return np.full(count, mean_s)
    if cv == 1:
        return rng.exponential(mean_s, count)
    shape = 1.0 / cv**2  # a Gamma law's CV is shape ** -0.5
    return rng.gamma(shape, mean_s / shape, count)


def spread_ticks(stamps_s: np.ndarray, tick_s: float, rng: np.random.Generator) -> np.ndarray:
    """Return sorted arrivals where each stamp is moved evenly into the tick that it opens.

    Publishers round stamps down (Mooncake's conversations: to 3 s, give or take 1 ms), which turns a steady stream into
    bursts. The i-th row keeps the i-th place: the times are drawn, then sorted.

    Args:
        stamps_s: recorded stamps in seconds, not decreasing, (n,).
        tick_s: width of a tick, seconds; 0 leaves the stamps alone.
        rng: the "arrivals" stream of the seed.
    """
    if tick_s == 0:
        return stamps_s
    if not 0 < tick_s < np.inf:
        raise WorkloadError(f"tick_s must be >= 0 (0: stamps are exact), got {tick_s}")
    return np.sort(stamps_s + rng.uniform(0.0, tick_s, len(stamps_s)))
