from __future__ import annotations

import numpy as np

from controllers.routing.random import Random


def test_random__is_uniform_over_the_allowed(start, ask):
    router = start(Random(), 4, 3)
    counts = np.bincount([router.act(ask(1, [0] * 4, mask=[True, True, False, True])) for _ in range(3000)])
    assert counts[2] == 0
    assert abs(counts[[0, 1, 3]] - 1000).max() < 120


def test_random__differs_between_seeds(fleet, ask):
    router, runs = Random(), []
    for seed in (1, 2):
        router.reset(fleet(4), seed)
        runs.append([router.act(ask(1, [0] * 4)) for _ in range(30)])
    assert runs[0] != runs[1]
