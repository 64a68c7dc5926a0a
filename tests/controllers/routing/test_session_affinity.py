from __future__ import annotations

import dataclasses

import pytest

from controllers.routing import session_affinity
from controllers.routing.session_affinity import SessionAffinity
from kvgym.errors import ConfigError


@pytest.fixture
def router(start):
    return start(SessionAffinity(), 3)


@pytest.fixture
def turn(router, ask):
    """Return a function that routes one turn of a session."""

    def go(session, node, inflight, mask=None):
        return router.act(dataclasses.replace(ask(node, inflight, mask=mask), session=session))

    return go


def test_session__stays_where_it_began(turn):
    first = turn(7, 1, [0, 0, 0])
    for inflight in ([0, 0, 0], [8, 8, 8], [8 * (w == first) for w in range(3)]):
        assert turn(7, 2, inflight) == first


def test_overload__moves_the_session_and_it_does_not_come_back(turn):
    first = turn(7, 1, [0, 0, 0])
    other = turn(7, 2, [9 if w == first else 0 for w in range(3)])
    assert other != first
    assert turn(7, 3, [0, 0, 0]) == other


def test_rebalancing__keeps_the_longest_prefix_among_near_least_loaded_workers(router, turn):
    router.worker_of[7] = 0
    router.cache.remember(1, 1, 0.0)
    router.cache.remember(2, 2, 0.0)
    # all of node 2's path is on worker 2, half of it on worker 1
    assert turn(7, 2, [9, 0, 1]) == 2
    router.worker_of[7] = 0
    # worker 2 has two more in flight than the least loaded: not near enough to receive
    assert turn(7, 2, [12, 0, 2]) == 1


def test_new_session__prefers_the_prefix_then_the_load(router, turn):
    router.cache.remember(1, 4, 0.0)
    assert turn(1, 5, [0, 1, 0]) == 1
    assert turn(2, 6, [1, 1, 0]) == 2


def test_mask__moves_the_session(turn):
    first = turn(7, 1, [0, 0, 0])
    assert turn(7, 2, [0, 0, 0], mask=[w != first for w in range(3)]) != first


def test_memory__forgets_the_session_that_was_silent_longest(router, turn, monkeypatch):
    monkeypatch.setattr(session_affinity, "_SESSIONS", 2)
    for session in (1, 2, 1, 3):
        turn(session, 1, [0, 0, 0])
    assert list(router.worker_of) == [1, 3]


def test_options__near_must_not_exceed_stay():
    with pytest.raises(ConfigError, match="near 5 and stay 4"):
        SessionAffinity(stay=4, near=5)
