"""KV events applied late, in gaps, across restarts; the truth is what a single cache does."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvgym.forest.forest import Forest
from kvgym.knowledge.event_index import EventIndex
from kvgym.types import KV_EVENT, REMOVED, STORED


@pytest.fixture
def forest() -> Forest:
    """Root - 1 (10 tokens) - 2 (10) - 3 (10); 1 - 4 (10)."""
    forest = Forest()
    forest.add_nodes(np.array([0, 1, 2, 1]), np.full(4, 10), np.full(4, 40))
    return forest


def index(forest: Forest, delay_s: float = 0.0, loss: float = 0.0, most: int = 1000) -> EventIndex:
    return EventIndex(forest, [most, most], delay_s, loss, np.random.default_rng(0))


def event(time_s: float, kind: int, node: int, first: int, last: int, worker: int = 0, incarnation: int = 0) -> tuple:
    return (time_s, worker, incarnation, kind, node, first, last)


def tell(known: EventIndex, *events: tuple, now_s: float = 99.0) -> EventIndex:
    known.publish(np.array(list(events), KV_EVENT))
    known.advance(now_s)
    return known


def held(known: EventIndex, node: int = 3) -> int:
    return int(known.match_tokens(node)[0])


def test_store__a_part_of_a_node_counts_in_tokens(forest):
    known = tell(index(forest), event(0, STORED, 2, 0, 14))
    assert [held(known, node) for node in (1, 2, 3, 4)] == [10, 14, 14, 10]
    tell(known, event(1, STORED, 3, 14, 30), event(2, REMOVED, 3, 23, 30))
    assert [held(known, node) for node in (2, 3)] == [20, 23]
    assert known.index.tokens.tolist() == [23, 0]


def test_remove__a_batch_with_an_unknown_part_still_deletes_the_rest(forest):
    """Node 2 was never heard of at all; removing 3, 2 and the end of 1 in one go deletes what is known."""
    known = tell(index(forest), event(0, STORED, 4, 0, 20))
    tell(known, event(1, REMOVED, 3, 5, 30))
    assert [held(known, node) for node in (1, 3)] == [5, 5]
    # the sibling below is another entry: it stays until its own removal comes, but does not count across the hole
    assert held(known, 4) == 5
    tell(known, event(2, REMOVED, 4, 10, 20), event(3, REMOVED, 2, 10, 20))
    assert (len(known.index), known.index.tokens.tolist()) == (1, [5, 0])


def test_remove__what_was_never_stored_changes_nothing(forest):
    known = tell(index(forest), event(0, REMOVED, 3, 0, 30), event(1, STORED, 1, 0, 10, worker=1))
    tell(known, event(2, REMOVED, 3, 0, 30))
    assert known.match_tokens(3).tolist() == [0, 10]


def test_loss__of_a_store_is_made_good_by_the_next_one_below(forest):
    assert held(tell(index(forest), event(0, STORED, 3, 20, 30))) == 30


def test_loss__of_everything(forest):
    assert held(tell(index(forest, loss=1.0), event(0, STORED, 3, 0, 30))) == 0


def test_loss__stale_entries_are_forgotten_at_the_bound(forest):
    known = index(forest, most=25)
    tell(known, event(0, STORED, 4, 0, 20), event(1, STORED, 3, 0, 30))
    # 40 tokens are told of: the oldest use, node 4's end, goes first, then the far end of the newer path
    assert known.index.tokens[0] <= 25
    assert [held(known, node) for node in (4, 3)] == [10, 20]


def test_delay__an_event_counts_from_its_time_plus_delay_on(forest):
    known = index(forest, delay_s=2.0)
    known.publish(np.array([event(1.0, STORED, 1, 0, 10), event(1.5, REMOVED, 1, 0, 10)], KV_EVENT))
    seen = []
    for now_s in (1.0, 2.9, 3.0, 3.4, 3.5):
        known.advance(now_s)
        seen.append(held(known))
    assert seen == [0, 0, 10, 10, 0]


def test_restart__clears_the_worker_and_late_events_do_not_resurrect_it(forest):
    known = index(forest, delay_s=5.0)
    known.publish(np.array([event(0.0, STORED, 1, 0, 10), event(0.0, STORED, 1, 0, 10, worker=1)], KV_EVENT))
    known.advance(5.0)
    known.publish(np.array([event(1.0, STORED, 2, 10, 20)], KV_EVENT))  # on its way when the worker restarts
    known.restart(0, 1)
    known.advance(9.0)
    assert known.match_tokens(3).tolist() == [0, 10]
    known.publish(np.array([event(8.0, STORED, 1, 0, 10, incarnation=1)], KV_EVENT))
    known.advance(13.0)
    assert known.match_tokens(3).tolist() == [10, 10]


def test_restart__a_newer_incarnation_in_an_event_says_it_too(forest):
    known = tell(index(forest), event(0, STORED, 3, 0, 30))
    tell(known, event(1, STORED, 4, 0, 20, incarnation=2), event(1, REMOVED, 4, 0, 20, incarnation=1))
    assert [held(known, node) for node in (3, 4)] == [10, 20]


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.integers(1, 4), st.integers(1, 30), st.booleans()), max_size=30))
def test_events__equal_a_set_of_tokens(steps):
    """Oracle: the prefix-closed set of (node, depth) tokens that one cache holds, events made from its changes."""
    forest = Forest()
    forest.add_nodes(np.array([0, 1, 2, 1]), np.full(4, 10), np.full(4, 40))
    paths = {1: [1], 2: [1, 2], 3: [1, 2, 3], 4: [1, 4]}
    tokens: set[tuple[int, int]] = set()
    known, time_s = index(forest), 0.0
    for node, depth, store in steps:
        path = paths[node]
        whole = [(path[i // 10], i) for i in range(10 * len(path))]
        have = next((i for i, token in enumerate(whole) if token not in tokens), len(whole))
        time_s += 1.0
        if store and depth > have and depth <= len(whole):
            tell(known, event(time_s, STORED, whole[depth - 1][0], have, depth), now_s=time_s)
            tokens.update(whole[have:depth])
        elif not store and have > 0 and (have == len(whole) or have % 10) and depth <= have:
            end = whole[have - 1][0]
            if any(held_node in paths and end in paths[held_node][:-1] for held_node, _ in tokens):
                continue  # not a leaf
            low = max(depth - 1, 10 * (len(paths[end]) - 1))
            tell(known, event(time_s, REMOVED, end, low, have), now_s=time_s)
            tokens.difference_update(whole[low:have])
        for other, path in paths.items():
            whole = [(path[i // 10], i) for i in range(10 * len(path))]
            expected = next((i for i, token in enumerate(whole) if token not in tokens), len(whole))
            assert held(known, other) == expected
    assert known.index.tokens[0] == len(tokens)
