from __future__ import annotations

import numpy as np
import pytest

from kvgym.forest.forest import Forest
from kvgym.forest.structure import extract


def paths(parents, node_ends, node):
    """Ends of the nodes on the path of `node`."""
    ends = []
    while node > 0:
        ends.append(int(node_ends[node - 1]))
        node = int(parents[node - 1])
    return ends[::-1]


def test_extract__nodes_in_the_order_of_their_first_use():
    forest = Forest()
    ends = [
        (forest.insert([1, 2, 3]), forest.insert([1, 2, 3, 4])),
        (forest.insert([1, 2, 9]), -1),
        (forest.insert([7]), -1),
    ]
    made = extract(forest, np.array(ends))
    assert made.counts.tolist() == [3, 1, 1]
    assert made.parents.tolist() == [0, 1, 2, 1, 0]
    assert made.node_ends.tolist() == [2, 3, 4, 3, 1]
    assert made.ends.tolist() == [[2, 3], [4, -1], [5, -1]]


def test_extract__joins_what_does_not_branch_and_drops_what_nobody_uses():
    forest = Forest()
    whole, _ = forest.insert([1, 2, 3, 4]), forest.insert([1, 2, 9])
    made = extract(forest, np.array([[whole]]))
    assert (made.parents.tolist(), made.node_ends.tolist(), made.ends.tolist()) == ([0], [4], [[1]])


@pytest.mark.parametrize("seed", range(5))
def test_extract__keeps_what_each_pair_of_prompts_shares(seed):
    rng = np.random.default_rng(seed)
    prompts = [rng.integers(0, 2, rng.integers(1, 12)).tolist() for _ in range(30)]
    forest = Forest()
    ends = np.array([[forest.insert(ids)] for ids in prompts])
    made = extract(forest, ends)
    assert np.all(made.parents <= np.arange(len(made.parents)))
    for i, one in enumerate(prompts):
        for j, other in enumerate(prompts):
            common = next((k for k, pair in enumerate(zip(one, other, strict=False)) if pair[0] != pair[1]), None)
            common = min(len(one), len(other)) if common is None else common
            shared = set(paths(made.parents, made.node_ends, made.ends[i, 0]))
            nodes = [path_nodes(made, e) for e in (made.ends[i, 0], made.ends[j, 0])]
            both = [made.node_ends[n - 1] for n in nodes[0] if n in nodes[1]]
            assert max(both, default=0) == common
            assert len(one) in shared


def path_nodes(made, node):
    found = []
    while node > 0:
        found.append(int(node))
        node = int(made.parents[node - 1])
    return found
