"""Each prefix has one colour and one letter, the same in every picture and every episode."""

from __future__ import annotations

import colorsys
import string
from functools import cache

from kvgym.envs.viewer.frame import OTHER, PRIVATE

Colour = tuple[int, int, int]
"""Red, green, blue, 0..255."""
_FIXED: dict[int, Colour] = {OTHER: (176, 180, 186), PRIVATE: (70, 76, 86)}
_LETTERS = {OTHER: "+", PRIVATE: "#"}
_GOLDEN = 0.618033988749895
"""Steps of this part of the colour circle keep neighbouring numbers apart."""


@cache
def colour(kind: int) -> Colour:
    """Return the colour of a prefix (a forest node) or of OTHER or PRIVATE."""
    if kind in _FIXED:
        return _FIXED[kind]
    red, green, blue = colorsys.hls_to_rgb(kind * _GOLDEN % 1.0, (0.62, 0.48, 0.74)[kind % 3], 0.65)
    return round(255 * red), round(255 * green), round(255 * blue)


def letter(kind: int) -> str:
    """Return the letter of a prefix, or the sign of OTHER or PRIVATE; prefixes whose numbers differ by 52 share one."""
    return _LETTERS.get(kind) or string.ascii_letters[kind % 52]
