from __future__ import annotations

import numpy as np

from kvgym.envs.viewer.frame import OTHER, PRIVATE
from kvgym.envs.viewer.palette import colour, letter


def test_colours__of_neighbouring_prefixes_are_far_apart():
    colours = np.array([colour(kind) for kind in range(200)], float)
    near = [np.abs(colours[i] - colours[i + step]).sum() for i in range(197) for step in (1, 2, 3)]
    assert min(near) > 60


def test_colours__are_bytes_and_prefixes_differ_from_the_fixed_ones():
    colours = [colour(kind) for kind in range(500)]
    assert all(0 <= part <= 255 for each in colours for part in each)
    assert not {colour(OTHER), colour(PRIVATE)} & set(colours)


def test_letters__are_one_character_and_repeat_after_the_alphabet():
    assert {len(letter(kind)) for kind in (OTHER, PRIVATE, 0, 51, 52, 10**6)} == {1}
    assert len({letter(kind) for kind in range(52)} | {letter(OTHER), letter(PRIVATE)}) == 54
    assert letter(0) == letter(52)
