"""An axis maps values to pixels, linearly or by logarithm, and chooses ticks that a reader can read."""

from __future__ import annotations

import math


class Scale:
    """Maps ``low .. high`` to ``start .. end`` pixels; values outside land on the nearer end.

    Args:
        low: smallest value, above 0 if `log`.
        high: largest value.
        start: pixel of `low`.
        end: pixel of `high`.
        log: logarithmic.
    """

    def __init__(self, low: float, high: float, start: float, end: float, log: bool = False) -> None:
        if high <= low:
            high = low * 1.5 if low > 0 else low + 1.0
        self.low, self.high, self.start, self.end, self.log = low, high, start, end, log

    def __call__(self, value: float) -> float:
        """Return the pixel of `value`."""
        value = min(max(value, self.low), self.high)
        if self.log:
            where = math.log(value / self.low) / math.log(self.high / self.low)
        else:
            where = (value - self.low) / (self.high - self.low)
        return self.start + where * (self.end - self.start)

    def ticks(self, most: int = 6) -> list[float]:
        """Return at most `most` round values inside the range, ascending."""
        return _log_ticks(self.low, self.high, most) if self.log else _linear_ticks(self.low, self.high, most)


def _linear_ticks(low: float, high: float, most: int) -> list[float]:
    unit = 10.0 ** math.floor(math.log10((high - low) / most))
    step = next(unit * factor for factor in (1, 2, 5, 10, 20) if (high - low) / (unit * factor) + 1 <= most + 1e-9)
    first = math.ceil(low / step - 1e-9)
    return [round(i * step, 12) for i in range(first, math.floor(high / step + 1e-9) + 1)]


def _log_ticks(low: float, high: float, most: int) -> list[float]:
    decades = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    for factors in ((1, 1.5, 2, 3, 4, 5, 6, 8), (1, 2, 3, 5), (1, 2, 5), (1, 3), (1,)):
        ticks = [float(f"{f * 10.0**d:.12g}") for d in decades for f in factors]
        ticks = [tick for tick in ticks if low * (1 - 1e-9) <= tick <= high * (1 + 1e-9)]
        if len(ticks) <= most:
            return ticks if len(ticks) > 1 else _linear_ticks(low, high, min(most, 4))
    return ticks[:: math.ceil(len(ticks) / most)]


def label(value: float) -> str:
    """Return a tick's text: 0.002, 0.5, 20, 1,500."""
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"
