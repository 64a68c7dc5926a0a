from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvgym.errors import SimulationError
from kvgym.forest.forest import NODE, Forest
from kvgym.knowledge.prefix_index import PrefixIndex

PARENTS = [-1, 0, 1, 1, 0, 4]
TOKENS = [0, 10, 5, 6, 8, 2]


@pytest.fixture
def forest() -> SimpleNamespace:
    """Root - 1 (10 tokens) - {2 (5), 3 (6)}; root - 4 (8) - 5 (2); four characters a token."""
    nodes = np.zeros(len(PARENTS), NODE)
    nodes["parent"] = PARENTS
    for node in range(1, len(PARENTS)):
        up, own = nodes[PARENTS[node]].copy(), nodes[node]
        own["level"], own["start"], own["end"] = up["level"] + 1, up["end"], up["end"] + TOKENS[node]
        own["chars"], own["chars_end"] = 4 * TOKENS[node], up["chars_end"] + 4 * TOKENS[node]
    return SimpleNamespace(nodes=nodes, splits=np.zeros((0, 3), np.int32))


def test_insert__tags_the_whole_path(forest):
    index = PrefixIndex(forest, 3)
    index.insert(1, 2, 0.5)
    assert index.match_tokens(2).tolist() == [0, 15, 0]
    assert index.match_chars(3).tolist() == [0, 40, 0]
    assert index.match_chars(5).tolist() == [0, 0, 0]
    assert (index.chars.tolist(), index.tokens.tolist(), len(index)) == ([0, 60, 0], [0, 15, 0], 2)


def test_insert__twice_changes_no_totals(forest):
    index = PrefixIndex(forest, 2)
    index.insert(0, 2, 0.5)
    index.insert(0, 2, 1.5)
    assert (index.chars.tolist(), len(index)) == ([60, 0], 2)


def test_deepest__names_all_holders_of_the_deepest_matched_node(forest):
    index = PrefixIndex(forest, 4)
    index.insert(1, 2, 0.0)
    index.insert(3, 3, 1.0)
    assert index.deepest(5)[0] == 0
    assert not index.deepest(5)[1].any()
    chars, holders = index.deepest(2)
    assert (chars, holders.tolist()) == (60, [False, True, False, False])
    index.evict(40)
    chars, holders = index.deepest(2)
    assert (chars, holders.tolist()) == (40, [False, True, False, True])


def test_owner__is_the_first_holder_until_it_loses_its_tag(forest):
    index = PrefixIndex(forest, 4)
    with pytest.raises(SimulationError, match="no worker has a tag on node 1"):
        index.owner(1)
    for worker in (2, 3, 1):
        index.insert(worker, 2, float(worker))
    assert index.owner(1) == 2
    index.remove_worker(2)
    assert index.owner(1) == 1
    index.insert(2, 2, 9.0)
    assert index.owner(1) == 1
    for worker in range(4):
        index.remove_worker(worker)
    index.insert(3, 3, 10.0)
    assert index.owner(1) == 3


def test_evict__removes_oldest_leaf_first(forest):
    index = PrefixIndex(forest, 1, max_chars=100)
    index.insert(0, 2, 0.0)
    index.insert(0, 5, 1.0)
    index.insert(0, 3, 2.0)
    assert index.chars.tolist() == [124]
    index.evict()
    # Node 2 (20 characters) is the oldest leaf and was not enough; then 5 before its own parent 4.
    assert [bool(index.tagged(node)[0]) for node in range(1, 6)] == [True, False, True, True, False]
    assert index.chars.tolist() == [96]


def test_evict__refreshed_leaf_survives(forest):
    index = PrefixIndex(forest, 1)
    index.insert(0, 2, 0.0)
    index.insert(0, 3, 1.0)
    index.insert(0, 2, 2.0)
    index.evict(70)
    assert index.tagged(2).tolist() == [True]
    assert index.tagged(3).tolist() == [False]


def test_evict__without_a_limit_keeps_everything(forest):
    index = PrefixIndex(forest, 1)
    index.insert(0, 2, 0.0)
    index.evict()
    assert len(index) == 2


def test_evict__late_report_of_an_old_access_keeps_parents_newest(forest):
    index = PrefixIndex(forest, 1)
    index.insert(0, 2, 5.0)
    index.insert(0, 3, 1.0)
    index.evict(40)
    assert index.match_chars(2).tolist() == [40]
    assert index.chars.tolist() == [40]


def test_remove_worker__clears_only_that_worker(forest):
    index = PrefixIndex(forest, 2)
    index.insert(0, 2, 0.0)
    index.insert(1, 3, 0.0)
    index.remove_worker(0)
    assert index.match_chars(2).tolist() == [0, 40]
    assert (index.chars.tolist(), index.tokens.tolist()) == ([0, 64], [0, 16])


def test_on_split__upper_half_counts_as_tagged_and_totals_stay():
    forest = Forest(chars_per_token=4.0)
    index = PrefixIndex(forest, 2)
    first = forest.insert([1, 2, 3, 4, 5, 6])
    index.insert(1, first, 0.0)
    other = forest.insert([1, 2, 3, 9])
    assert len(forest.splits) == 1
    assert index.match_tokens(other).tolist() == [0, 3]
    assert index.match_tokens(first).tolist() == [0, 6]
    assert (index.chars.tolist(), len(index)) == ([0, 24], 2)
    index.on_split(*forest.splits[0, :2])
    assert (index.chars.tolist(), len(index)) == ([0, 24], 2)


def test_on_split__upper_half_has_the_same_owner():
    forest = Forest()
    index = PrefixIndex(forest, 3)
    node = forest.insert([1, 2, 3, 4])
    for worker in (2, 0, 1):
        index.insert(worker, node, float(worker))
    forest.insert([1, 2])
    assert index.owner(int(forest.splits[0, 0])) == index.owner(node) == 2


def test_table__grows_with_tags_not_with_workers_times_nodes():
    forest = Forest()
    nodes = forest.add_nodes(np.zeros(20_000, np.int64), np.full(20_000, 3), np.full(20_000, 7))
    index = PrefixIndex(forest, 1000)
    for worker, node in enumerate(nodes[:3000]):
        index.insert(worker % 1000, int(node), float(worker))
    assert len(index) == 3000
    assert index.chars.tolist() == [21] * 1000
    assert index.nbytes < 1_000_000  # a dense table: 20 million pairs


class BruteTree:
    """Oracle: each worker's tree as the set of all prefixes of what it was sent."""

    def __init__(self, workers: int) -> None:
        self.held: list[set[str]] = [set() for _ in range(workers)]

    def insert(self, worker: int, text: str) -> None:
        self.held[worker].update(text[: i + 1] for i in range(len(text)))

    def match(self, text: str) -> list[int]:
        return [max((i for i in range(1, len(text) + 1) if text[:i] in held), default=0) for held in self.held]


@settings(max_examples=150, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 2), st.text("ab", min_size=1, max_size=12)), min_size=1, max_size=25))
def test_online_forest__equals_sets_of_prefixes(sends):
    forest, brute = Forest(chars_per_token=1.0), BruteTree(3)
    index = PrefixIndex(forest, 3)
    for i, (worker, text) in enumerate(sends):
        node = forest.insert([ord(c) for c in text])
        expected = brute.match(text)
        assert index.match_chars(node).tolist() == expected
        assert index.match_tokens(node).tolist() == expected
        assert index.deepest(node)[0] == max(expected)
        index.insert(worker, node, float(i))
        brute.insert(worker, text)
        assert index.chars.tolist() == [len(held) for held in brute.held]
    nodes = forest.nodes
    tagged = np.array([index.tagged(node) for node in range(1, len(nodes))])
    assert (tagged * nodes["chars"][1:, None]).sum(0).tolist() == index.chars.tolist()
    assert tagged.sum() == len(index)


class BruteLru:
    """Oracle for eviction: literal search for the oldest tag without tagged children."""

    def __init__(self, parents: list[int], chars: list[int]) -> None:
        self.parents, self.chars, self.time = parents, chars, {}

    def insert(self, node: int, time_s: float) -> None:
        while node > 0:
            self.time[node] = time_s
            node = self.parents[node]

    def evict(self, limit: int) -> None:
        while sum(self.chars[node] for node in self.time) > limit:
            inner = {self.parents[node] for node in self.time}
            del self.time[min((t, node) for node, t in self.time.items() if node not in inner)[1]]


@settings(max_examples=100, deadline=None)
@given(st.data())
def test_evict__equals_literal_leaf_lru(data):
    size = data.draw(st.integers(2, 15))
    parents = [-1] + [data.draw(st.integers(0, node - 1)) for node in range(1, size)]
    chars = [0] + [data.draw(st.integers(1, 9)) for _ in range(1, size)]
    forest = Forest()
    forest.add_nodes(np.array(parents[1:]), np.ones(size - 1, np.int64), np.array(chars[1:]))
    index, brutes = PrefixIndex(forest, 2), [BruteLru(parents, chars) for _ in range(2)]
    for step in range(data.draw(st.integers(1, 20))):
        worker, node = data.draw(st.integers(0, 1)), data.draw(st.integers(1, size - 1))
        index.insert(worker, node, float(step))
        brutes[worker].insert(node, float(step))
        if data.draw(st.booleans()):
            limit = data.draw(st.integers(0, 30))
            index.evict(limit)
            for brute in brutes:
                brute.evict(limit)
        for w, brute in enumerate(brutes):
            assert [bool(index.tagged(n)[w]) for n in range(1, size)] == [n in brute.time for n in range(1, size)]
            assert index.chars[w] == sum(chars[n] for n in brute.time)
            assert index.tokens[w] == len(brute.time)
    assert len(index) == sum(len(brute.time) for brute in brutes)


def test_max_tokens__the_least_recently_used_leaves_go_at_each_insert(forest):
    index = PrefixIndex(forest, 2, max_tokens=[20, 1000])
    for worker in (0, 1):
        index.insert(worker, 2, 0.0)
        index.insert(worker, 5, 1.0)
    # worker 0: node 2 (5 tokens) is the oldest leaf, and enough
    assert [index.tagged(node).tolist() for node in (2, 1, 4, 5)] == [[False, True]] + [[True, True]] * 3
    assert index.tokens.tolist() == [20, 25]


def test_forget__down_to_a_number_of_tokens(forest):
    index = PrefixIndex(forest, 1)
    index.insert(0, 2, 0.0)
    index.insert(0, 3, 1.0)
    index.forget(0, 16)
    assert [bool(index.tagged(node)[0]) for node in (1, 2, 3)] == [True, False, True]


def test_remove__is_precise_to_a_token_and_leaves_what_is_below(forest):
    index = PrefixIndex(forest, 1)
    index.insert(0, 2, 0.0)
    index.remove(0, 1, 4, 10)
    assert index.match_unbroken(2).tolist() == [4]
    assert (index.tokens.tolist(), len(index)) == ([9], 2)
    index.remove(0, 5, 0, 10)
    assert index.tokens.tolist() == [9]


def test_split__of_a_node_held_in_part():
    """Held 4 of 6 tokens; a split at 5 leaves them in the upper half, one at 2 divides them."""
    forest = Forest(chars_per_token=4.0)
    index = PrefixIndex(forest, 2)
    first = forest.insert([1, 2, 3, 4, 5, 6])
    index.insert(1, first, 0.0, tokens=4)
    forest.insert([1, 2, 3, 4, 5, 9])
    assert index.match_unbroken(first).tolist() == [0, 4]
    assert (index.tokens.tolist(), len(index)) == ([0, 4], 1)
    forest.insert([1, 2, 7])
    assert index.match_unbroken(first).tolist() == [0, 4]
    assert (index.tokens.tolist(), len(index)) == ([0, 4], 2)
    index.remove_worker(1)
    assert (index.tokens.tolist(), index.chars.tolist(), len(index)) == ([0, 0], [0, 0], 0)


def test_two_hours_of_long_documents__flat_memory():
    """A stream as LooGLE's: a document of 20,000 tokens every 8 s, eight questions on each, four workers."""
    documents, questions = 900, 8
    forest = Forest()
    heads = forest.add_nodes(np.zeros(documents, np.int64), np.full(documents, 20_000), np.full(documents, 80_000))
    tails = forest.add_nodes(np.repeat(heads, questions), np.full(documents * questions, 50), np.full(7200, 200))
    index, sizes = PrefixIndex(forest, 4, max_tokens=[196_000] * 4), []
    for second, node in enumerate(tails.tolist()):
        index.insert(second // questions % 4, node, float(second))
        sizes.append((index.nbytes, len(index)))
    assert max(index.tokens) <= 196_000
    assert len({nbytes for nbytes, _ in sizes}) == 1
    assert max(tags for _, tags in sizes[3600:]) == max(tags for _, tags in sizes[:3600]) < 400


@settings(max_examples=100, deadline=None)
@given(st.data())
def test_order_of_use__survives_late_reports(data):
    """What is forgotten is always a leaf and never newer than what stays, whatever the order of times."""
    size = data.draw(st.integers(2, 12))
    parents = [-1] + [data.draw(st.integers(0, node - 1)) for node in range(1, size)]
    forest = Forest()
    forest.add_nodes(np.array(parents[1:]), np.ones(size - 1, np.int64), np.ones(size - 1, np.int64))
    index, used = PrefixIndex(forest, 1), {}
    for _ in range(data.draw(st.integers(1, 15))):
        node, time_s = data.draw(st.integers(1, size - 1)), data.draw(st.integers(0, 5))
        index.insert(0, node, float(time_s))
        while node > 0:
            used[node] = max(used.get(node, 0), time_s)
            node = parents[node]
    while len(index):
        index.forget(0, len(index) - 1)
        kept = {node for node in range(1, size) if index.tagged(node)[0]}
        (gone,) = used.keys() - kept
        assert gone not in {parents[node] for node in kept}
        assert all(used[gone] <= used[node] for node in kept)
        del used[gone]
