from __future__ import annotations

import numpy as np
import pytest

from kvgym.errors import WorkloadError
from kvgym.logs.digest import Digest
from kvgym.logs.entries import Entry
from kvgym.logs.tokens import FallbackTokeniser


def digest(folder, *entries, exact=False):
    with Digest(FallbackTokeniser(), folder, exact=exact, keep_text=False) as made:
        for entry in entries:
            made.add([entry])
    columns, _, facts = made.finish()
    return columns, facts


def ids(*values):
    return np.array(values, np.int64)


def test_finish__times_sessions_and_think_times(tmp_path):
    columns, facts = digest(
        tmp_path,
        Entry("1", ids(1, 2), ids(3), time_s=100.0, latency_s=2.0, session="a"),
        Entry("2", ids(5, 6), ids(7), time_s=101.0, latency_s=None),
        Entry("3", ids(1, 2, 3, 4), ids(9, 9, 9), time_s=105.5, latency_s=1.0, session="a"),
        Entry("4", ids(5, 6, 7, 8), None, time_s=106.0),
    )
    assert columns["arrival_s"].tolist() == [0, 1, 5.5, 6]
    assert columns["session"].tolist() == [0, 1, 0, 1]
    np.testing.assert_array_equal(columns["think_s"], [np.nan, np.nan, 3.5, np.nan])
    assert columns["prompt_tokens"].tolist() == [2, 2, 4, 4]
    assert columns["output_tokens"].tolist() == [1, 1, 3, 0]
    assert columns["output_node"].tolist() == [2, 4, 6, -1]
    assert columns["node_parent"].tolist() == [0, 1, 0, 3, 2, 5, 4]
    assert columns["node_end"].tolist() == [2, 3, 2, 3, 4, 7, 4]
    assert (facts["sessions"], facts["continuations_inferred"], facts["answers_unknown"]) == (2, 1, 1)


def test_finish__a_missing_answer_is_taken_from_the_prompt_that_repeats_it(tmp_path):
    columns, facts = digest(
        tmp_path,
        Entry("1", ids(1, 2), output_tokens=3, session="a"),
        Entry("2", ids(1, 2, 3, 4, 5, 6), output_tokens=2, session="a"),
        Entry("3", ids(1, 2, 3, 4, 5, 6, 7), output_tokens=2, session="a"),  # too short to hold two tokens of answer
        Entry("4", ids(1, 9, 9, 9, 9, 9, 9, 9, 9, 9), session="a"),  # does not start with the prompt before
    )
    assert columns["output_tokens"].tolist() == [3, 2, 2, 0]
    ends = np.concatenate(([0], columns["node_end"]))
    parents = np.concatenate(([-1], columns["node_parent"]))
    first = columns["output_node"][0]
    assert (ends[first], columns["output_node"][1:].tolist()) == (5, [-1, -1, -1])
    assert parents[columns["prompt_node"][1]] == first
    assert facts["answers_from_the_next_prompt"] == 1


def test_finish__a_missing_answer_of_a_chat_is_as_long_as_the_chat_says(tmp_path):
    start = "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n"
    later = start + "Hello dear you<|im_end|>\n<|im_start|>user\nBye<|im_end|>\n<|im_start|>assistant\n"
    columns, facts = digest(tmp_path, Entry("1", start), Entry("2", later))
    assert columns["output_tokens"].tolist() == [3, 0]
    assert columns["session"].tolist() == [0, 0]
    assert facts["answers_from_the_next_prompt"] == 1


def test_finish__thinking_is_generated_but_not_repeated(tmp_path):
    columns, facts = digest(
        tmp_path,
        Entry("1", "a b c", " d e f g h", thinking="hm hm hm"),
        Entry("2", "a b c d e f g h i", " j"),
    )
    assert columns["output_tokens"].tolist() == [8, 1]
    assert columns["session"].tolist() == [0, 0]
    ends = np.concatenate(([0], columns["node_end"]))
    assert ends[columns["output_node"][0]] == 11
    assert columns["node_parent"][columns["output_node"][0] - 1] == columns["prompt_node"][0]
    assert columns["node_parent"][columns["prompt_node"][1] - 1] == columns["prompt_node"][0]
    assert facts["continuations_inferred"] == 1


def test_add__made_up_ids_do_not_meet_real_ones(tmp_path):
    columns, _ = digest(
        tmp_path, Entry("1", ids(1, 2), " three words here"), Entry("2", "a prompt", ids(4, 4), output_tokens=9)
    )
    assert columns["output_tokens"].tolist() == [3, 9]
    assert columns["output_node"].tolist() == [-1, -1]
    (tmp_path / "exact").mkdir()
    columns, _ = digest(tmp_path / "exact", Entry("1", ids(1, 2), " three words here"), exact=True)
    assert columns["output_node"].tolist() == [2]


def test_add__a_prompt_without_tokens(tmp_path):
    made = Digest(lambda texts: [ids() for _ in texts], tmp_path, exact=True, keep_text=False)
    with pytest.raises(WorkloadError, match="log, line 4: the prompt has no tokens"):
        made.add([Entry("log, line 4", "x")])


@pytest.mark.parametrize(
    ("stamps", "tick_s"), [((1, 1, 2), 1.0), ((1, 2, 3), 0.0), ((1, 1, 2.5), 0.0), ((None, None), 0.0)]
)
def test_finish__whole_seconds_with_equals_are_ticks(tmp_path, stamps, tick_s):
    _, facts = digest(tmp_path, *(Entry("", ids(i), time_s=stamp) for i, stamp in enumerate(stamps)))
    assert facts["tick_s"] == tick_s


def test_finish__chars_and_the_servers_own_counts(tmp_path):
    _, facts = digest(tmp_path, Entry("1", "abc def", prompt_tokens=4), Entry("2", "abc", prompt_tokens=2))
    assert facts["chars_per_token"] == pytest.approx(10 / 3, abs=1e-3)
    assert facts["prompt_tokens_counted_per_reported"] == 0.5


def test_finish__tenants_are_numbered_by_size_and_not_named(tmp_path):
    names = ["few", "", "many", "many", "once", "many", "few"]
    columns, facts = digest(tmp_path, *(Entry("1", ids(k), ids(9), tenant=name) for k, name in enumerate(names)))
    assert columns["tenant"].tolist() == [1, 2, 0, 0, 3, 0, 1]
    assert facts["tenants"] == 4
    assert "many" not in str(facts)
