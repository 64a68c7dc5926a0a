from __future__ import annotations

import numpy as np
import pytest

from kvgym.forest.forest import Forest
from kvgym.jit.door import as_records
from kvgym.logs.continuation import TURN, link, number_sessions


class Log:
    """Requests given as token ids; `link` runs after each, or once at the end."""

    def __init__(self):
        self.forest, self.rows = Forest(), []

    def add(self, prompt, answer=None, owner=0, session=0, last=(-1, -1)):
        row = np.zeros(1, TURN)[0]
        whole = [*prompt, *(answer or [])]
        row["prompt_node"], node = self.forest.insert(prompt), self.forest.insert(whole)
        row["output_node"], row["mark_node"] = (node if answer else -1), node
        row["prompt_tokens"], row["mark_tokens"] = len(prompt), len(whole)
        row["answer_start"], row["answer_end"] = last
        row["owner"], row["session"] = owner, session
        self.rows.append(row)
        return self

    def previous(self, begin=0):
        turns = np.array(self.rows, TURN)
        size = len(self.forest)
        marks, near = np.full(size, -1, np.int32), np.zeros(size, np.int32)
        nodes = as_records(self.forest.nodes)
        link(as_records(turns), nodes, marks, near, self.forest.splits, begin)
        return turns["previous"].tolist()


def test_link__a_prompt_that_starts_with_prompt_and_answer():
    log = Log().add([1, 2], [3, 4]).add([1, 2, 3, 4, 5], [6, 7]).add([1, 2, 3, 4, 5, 6, 7, 8], [9])
    assert log.previous() == [-1, 0, 1]


def test_link__the_same_prompt_or_no_more_than_the_answer_continues_nothing():
    assert (
        Log().add([1, 2], [3, 4]).add([1, 2], [5]).add([1, 2, 3, 4], [5]).add([1, 2, 9, 9, 9], [5]).previous()
        == [-1] * 4
    )


def test_link__one_successor_each_the_latest_first():
    log = Log()
    for _ in range(3):
        log.add([1, 2], [3, 4])
    for last in (5, 6, 7, 8):
        log.add([1, 2, 3, 4, last], [9, 9])
    assert log.previous() == [-1, -1, -1, 2, 1, 0, -1]


def test_link__of_one_owner_only():
    log = Log().add([1, 2], [3, 4], owner=1).add([1, 2], [3, 4], owner=2)
    assert log.add([1, 2, 3, 4, 5], owner=1).add([1, 2, 3, 4, 6], owner=3).previous() == [-1, -1, 0, -1]


@pytest.mark.parametrize(
    ("answer", "continues"), [([3, 4, 5, 6], True), ([3, 4, 5], True), ([3, 4], False), ([3], False)]
)
def test_link__up_to_two_tokens_at_the_seam_may_differ(answer, continues):
    kept = answer[:-2]
    later = [1, 2, *kept, 77, 78, 79, 80]
    assert Log().add([1, 2], answer).add(later).previous() == [-1, 0 if continues else -1]


def test_link__a_seam_where_another_prompt_has_branched_off_before():
    log = Log().add([1, 2, 3, 4, 9, 9, 9], [5]).add([1, 2], [3, 4, 6]).add([1, 2, 3, 4, 7, 7, 7])
    assert log.previous() == [-1, -1, 1]


def test_link__an_answer_that_was_not_logged_is_told_by_the_chat():
    log = Log().add([1, 2]).add([1, 2, 3, 4, 5]).add([1, 2, 3, 4, 5], last=(2, 4)).add([1, 2, 8, 9], last=(2, 3))
    assert log.previous() == [-1, -1, 0, -1]


def test_link__requests_with_a_session_of_their_own_stay_out():
    log = Log().add([1, 2], [3, 4], session=7).add([1, 2, 3, 4, 5], [6]).add([1, 2, 3, 4, 5, 6, 7], session=7)
    assert log.previous() == [-1, -1, -1]


def test_number_sessions__by_their_first_request():
    turns = np.zeros(5, TURN)
    turns["session"] = [0, 0, 12, 0, 0]
    turns["previous"] = [-1, 0, -1, -1, 1]
    number_sessions(as_records(turns))
    assert turns["session"].tolist() == [-1, -1, 12, -4, -1]
