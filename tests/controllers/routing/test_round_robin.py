from __future__ import annotations

from controllers.routing.round_robin import RoundRobin


def test_round_robin__takes_turns(start, ask):
    router = start(RoundRobin(), 3)
    assert [router.act(ask(1, [9, 0, 0])) for _ in range(7)] == [0, 1, 2, 0, 1, 2, 0]


def test_round_robin__masked_worker_loses_its_turn(start, ask):
    router = start(RoundRobin(), 3)
    masks = [[True] * 3, [True, False, True], [True] * 3, [True] * 3, [False, True, False], [True] * 3]
    assert [router.act(ask(1, [0] * 3, mask=mask)) for mask in masks] == [0, 2, 0, 1, 1, 2]
