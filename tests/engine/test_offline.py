"""The offline optimum on events written by hand; `tests/harness/test_theory.py` searches for it."""

from __future__ import annotations

import numpy as np
import pytest

from kvgym.engine.offline import ADMIT, END, HOLD, find_intervals, most_hits, tokens_in_use
from kvgym.forest.forest import Forest
from kvgym.jit.door import as_records


def events(*rows: tuple[int, int]) -> np.ndarray:
    return np.array(rows, np.int64).reshape(-1, 2)


@pytest.fixture
def forest() -> tuple[np.ndarray, np.ndarray]:
    """Prompts of 5 and 4 tokens that share 3, and one of 2; return (nodes, the prompts' nodes)."""
    forest = Forest()
    words = ([1, 2, 3, 4, 5], [1, 2, 3, 9], [7, 8])
    for word in words:
        forest.insert(word)
    nodes = np.array([forest.insert(word) for word in words], np.int64)
    return as_records(np.ascontiguousarray(forest.nodes)), nodes


def test_find_intervals__from_the_last_end_to_the_next_admission(forest) -> None:
    nodes, prompt = forest
    course = events((ADMIT, 0), (HOLD, 0), (END, 0), (ADMIT, 1), (HOLD, 1), (END, 1))
    held, found = np.zeros(3, np.int64), np.zeros((9, 3), np.int64)
    count = find_intervals(nodes, course, prompt, prompt, np.array([4, 3, 1]), held, found)
    assert found[:count].tolist() == [[2, 3, 3]]
    assert held.tolist() == [0, 0, 0]


def test_find_intervals__what_others_hold_needs_no_room(forest) -> None:
    nodes, prompt = forest
    course = events((ADMIT, 0), (HOLD, 0), (ADMIT, 1), (HOLD, 1), (END, 0), (END, 1))
    held, found = np.zeros(3, np.int64), np.zeros((9, 3), np.int64)
    assert find_intervals(nodes, course, prompt, prompt, np.array([4, 3, 1]), held, found) == 0
    assert held.tolist() == [0, 3, 0]


def test_find_intervals__counts_more_than_fit(forest) -> None:
    nodes, prompt = forest
    once = [(ADMIT, 2), (HOLD, 2), (END, 2)]
    none = np.zeros((0, 3), np.int64)
    assert (
        find_intervals(nodes, events(*once * 4), prompt, prompt, np.array([4, 3, 2]), np.zeros(3, np.int64), none) == 3
    )


def test_tokens_in_use__shared_prefixes_count_once(forest) -> None:
    nodes, prompt = forest
    course = events((ADMIT, 0), (HOLD, 0), (ADMIT, 1), (HOLD, 1), (END, 0), (END, 1), (ADMIT, 2))
    used = np.zeros(len(course), np.int64)
    tokens_in_use(nodes, course, prompt, np.ones(3, np.int64), used)
    assert used.tolist() == [0, 5, 5, 6, 6, 4, 0]
    tokens_in_use(nodes, course, prompt, np.array([0, 1, 1]), used)
    assert used.tolist() == [0, 0, 0, 4, 4, 4, 0]


@pytest.mark.parametrize(
    ("room", "hits"), [(5, [0, 0, 0, 3, 2]), (4, [0, 0, 0, 3, 1]), (3, [0, 0, 0, 3, 0]), (2, [0, 0, 0, 2, 0])]
)
def test_most_hits__what_is_needed_last_goes_first(room: int, hits: list[int]) -> None:
    """Two tokens wait from event 0 to 4 and three from 1 to 3; event 2 leaves little room."""
    course = events((END, 0), (END, 1), (HOLD, 2), (ADMIT, 3), (ADMIT, 4))
    rooms = np.array([9, 9, room, 9, 9])
    found = np.zeros(5, np.int64)
    most_hits(course, rooms, np.array([[0, 4, 2], [1, 3, 3]]), 9, found)
    assert found.tolist() == hits


def test_most_hits__never_more_than_the_pool() -> None:
    course = events((END, 0), (ADMIT, 1))
    found = np.zeros(2, np.int64)
    most_hits(course, np.array([9, 9]), np.array([[0, 1, 7]]), 4, found)
    assert found.tolist() == [0, 4]
