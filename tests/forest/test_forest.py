"""The forest shares exactly what prompts share: against brute force, by ids and by structure."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvgym.errors import WorkloadError
from kvgym.forest.forest import Forest


def shared_tokens(forest: Forest, a: int, b: int) -> int:
    """Tokens of the deepest common ancestor."""
    common = set(forest.path(a)) & set(forest.path(b))
    return max((int(forest.nodes[n]["end"]) for n in common), default=0)


def expected_shared(a: tuple[list[int], int], b: tuple[list[int], int], block: int, page: int) -> int:
    """Longest common prefix of two (ids, tokens) prompts, floored to a page, by looking at every token."""
    depth = 0
    while depth < min(a[1], b[1]) and a[0][depth // block] == b[0][depth // block]:
        depth += 1
    return depth // page * page


def check_shape(forest: Forest) -> None:
    """Every invariant that a node has by itself or with its parent."""
    nodes = forest.nodes
    assert tuple(nodes[0]) == (-1, 0, 0, 0, 0, 0)
    below = nodes[1:]
    above = nodes[below["parent"]]
    assert np.all(below["level"] == above["level"] + 1)
    assert np.all(below["start"] == above["end"])
    assert np.all(below["end"] > below["start"])
    assert np.all(below["chars_end"] == above["chars_end"] + below["chars"])
    assert np.all(below["chars"] >= 0)
    assert np.all(nodes["end"] % forest.page_size == 0)


prompts_of_ids = st.lists(
    st.tuples(st.lists(st.integers(0, 2), min_size=1, max_size=12), st.integers(0, 40)), min_size=1, max_size=10
)


@settings(max_examples=100, deadline=None)
@given(prompts=prompts_of_ids, block=st.sampled_from([1, 2, 3, 5]), page=st.sampled_from([1, 2, 3, 4]))
def test_insert__shares_the_common_prefix_floored_to_a_page(prompts, block, page):
    rows = [(ids, len(ids) * block - cut % block) for ids, cut in prompts]
    one_by_one, bulk = Forest(page, block), Forest(page, block)
    nodes = [one_by_one.insert(ids, tokens) for ids, tokens in rows]
    starts = np.cumsum([0] + [len(ids) for ids, _ in rows[:-1]])
    flat = np.concatenate([ids for ids, _ in rows])
    assert list(bulk.insert_many(flat, starts, np.array([t for _, t in rows]))) == nodes
    assert np.array_equal(bulk.nodes, one_by_one.nodes)
    assert np.array_equal(bulk.splits, one_by_one.splits)
    check_shape(bulk)
    for i, (a, row_a) in enumerate(zip(nodes, rows, strict=True)):
        assert bulk.nodes[a]["end"] == row_a[1] // page * page
        for b, row_b in zip(nodes[:i], rows[:i], strict=True):
            assert shared_tokens(bulk, a, b) == expected_shared(row_a, row_b, block, page)


@settings(max_examples=100, deadline=None)
@given(
    chain=st.lists(st.tuples(st.integers(0, 30), st.integers(1, 5)), min_size=1, max_size=12),
    page=st.sampled_from([2, 3, 4]),
)
def test_paged__agrees_with_building_by_ids(chain, page):
    plain = Forest()
    for above, tokens in chain:
        plain.add_node(above % len(plain), tokens, chars=3 * tokens)
    paged, node_map = plain.paged(page)
    check_shape(paged)
    by_ids = Forest(page)
    inserted = [by_ids.insert(plain.materialise(n, int(plain.nodes[n]["end"]), 50_000)) for n in range(1, len(plain))]
    for n in range(1, len(plain)):
        assert paged.nodes[node_map[n]]["end"] == plain.nodes[n]["end"] // page * page
        for m in range(1, n):
            floor = shared_tokens(plain, n, m) // page * page
            assert shared_tokens(paged, node_map[n], node_map[m]) == floor
            assert shared_tokens(by_ids, inserted[n - 1], inserted[m - 1]) == floor


def test_insert__split_keeps_the_id_of_the_lower_half():
    forest = Forest(page_size=2)
    first = forest.insert([1, 2, 3, 4, 5, 6])
    second = forest.insert([1, 2, 3, 9, 9, 9])
    upper = int(forest.nodes[first]["parent"])
    assert forest.splits.tolist() == [[upper, first, 2]]
    assert [tuple(forest.nodes[n])[1:4] for n in (upper, first, second)] == [(1, 0, 2), (2, 2, 6), (2, 2, 6)]
    assert forest.insert([1, 2, 3, 4, 5, 6, 7, 8]) == len(forest) - 1
    assert forest.path(len(forest) - 1).tolist() == [upper, first, len(forest) - 1]
    assert forest.insert([1]) == 0


def test_insert__levels_below_a_late_split_near_the_root():
    forest = Forest()
    deep = [forest.insert([7] * 10 + [i] * 5 + [j]) for i in range(3) for j in range(3)]
    forest.insert([7, 7, 1])
    check_shape(forest)
    assert {len(forest.path(n)) for n in deep} == {4}


def test_pickle__goes_on_like_the_original():
    forest = Forest(page_size=4, block_tokens=2)
    rng = np.random.default_rng(0)
    for _ in range(50):
        forest.insert(rng.integers(0, 2, 12))
    twin = pickle.loads(pickle.dumps(forest))
    for _ in range(200):
        ids = rng.integers(0, 2, 14)
        assert forest.insert(ids) == twin.insert(ids)
    assert np.array_equal(forest.nodes, twin.nodes)


def test_insert_many__ids_that_do_not_reach():
    with pytest.raises(
        WorkloadError, match="1 of 2 prompts do not fit their ids; prompt 1 has 9 tokens and 2 ids of 4"
    ):
        Forest(1, 4).insert_many(np.arange(4), np.array([0, 2]), np.array([8, 9]))


def test_materialise__real_ids_in_a_forest_of_token_ids():
    forest = Forest(page_size=2)
    node = forest.insert([5, 6, 7, 8, 9])
    forest.insert([5, 6, 1, 2])
    assert forest.materialise(node, 4, 100).tolist() == [5, 6, 7, 8]
    assert forest.materialise(node, 3, 100).tolist() == [5, 6, 7]
    with pytest.raises(WorkloadError, match=f"2 token ids of node {node} lie outside the vocabulary of 7"):
        forest.materialise(node, 4, 7)


def test_materialise__siblings_differ_within_their_first_page():
    structure = Forest()
    above = structure.add_node(0, 5)
    nodes = structure.add_nodes(np.full(90, above), np.full(90, 6), np.full(90, 24))
    texts = [structure.materialise(n, 11, 90) for n in nodes]
    assert len({int(t[5]) for t in texts}) == 90
    assert all(np.array_equal(t[:5], texts[0][:5]) for t in texts)
    assert np.array_equal(texts[3], structure.materialise(nodes[3], 11, 90))
    paged, node_map = structure.paged(3)
    assert len({tuple(paged.materialise(node_map[n], 9, 10)[3:6]) for n in nodes}) == 90


def test_materialise__more_children_than_the_vocabulary():
    forest = Forest()
    nodes = forest.add_nodes(np.zeros(3627, int), np.full(3627, 8), np.full(3627, 8))
    with pytest.raises(WorkloadError, match="2627 of 3627 children of node 0 do not fit a vocabulary of 1000"):
        forest.materialise(nodes[0], 8, 1000)


def test_materialise__tail_shorter_than_a_page():
    forest = Forest(page_size=4, block_tokens=4)
    node = forest.insert([1, 2], 8)
    assert len(forest.materialise(node, 11, 50)) == 11
    with pytest.raises(WorkloadError, match=r"tokens must be 0..11, got 12"):
        forest.materialise(node, 12, 50)


def test_add_nodes__rejects_what_is_not_a_tree_of_pages():
    with pytest.raises(WorkloadError, match="exists before its child"):
        Forest().add_node(3, 1)
    with pytest.raises(WorkloadError, match="positive multiple of the page size 4, got 6"):
        Forest(4).add_node(0, 6)


def test_paged__refuses_a_forest_of_ids():
    forest = Forest()
    forest.insert([1, 2, 3])
    with pytest.raises(WorkloadError, match="add_nodes at page size 1"):
        forest.paged(2)


def test_insert__same_without_the_jit():
    code = (
        "import numpy as np; from kvgym.forest.forest import Forest\n"
        "f = Forest(2, 3); r = np.random.default_rng(3)\n"
        "o = [f.insert(r.integers(0, 2, 9) * (2**40 + 1), int(r.integers(1, 28))) for _ in range(60)]\n"
        "f.insert_many(r.integers(0, 2, 90), np.arange(0, 90, 9), r.integers(1, 28, 10))\n"
        "print(o, f.nodes.tolist(), f.splits.tolist())"
    )
    runs = [
        subprocess.run(
            [sys.executable, "-W", "error", "-c", code],
            env={**os.environ, "NUMBA_DISABLE_JIT": off},
            capture_output=True,
        )
        for off in ("0", "1")
    ]
    assert all(run.returncode == 0 for run in runs), runs[-1].stderr.decode()
    assert runs[0].stdout == runs[1].stdout
