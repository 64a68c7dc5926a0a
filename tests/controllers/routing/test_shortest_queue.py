from __future__ import annotations

import numpy as np

from controllers.routing.shortest_queue import ShortestQueue


def test_shortest_queue__takes_the_fewest_in_flight(fleet, ask):
    router = ShortestQueue()
    router.reset(fleet(4), 0)
    assert router.act(ask(1, [3, 2, 1, 4])) == 2
    assert router.act(ask(1, [3, 2, 1, 4], mask=[True, True, False, True])) == 1


def test_shortest_queue__ties_are_drawn(fleet, ask):
    router = ShortestQueue()
    router.reset(fleet(4), 0)
    counts = np.bincount([router.act(ask(1, [5, 1, 1, 1])) for _ in range(3000)])
    assert counts[0] == 0
    assert abs(counts[1:] - 1000).max() < 120
