from __future__ import annotations

import numpy as np

from kvgym.engine.coverage import depths, touch
from kvgym.forest.forest import Forest
from kvgym.jit.door import as_records


def test_touch__first_touches_whole_and_in_part():
    """A node of 10 tokens with a child of 5; the child is touched to depth 12 at 3 and as a whole at 7."""
    forest = Forest()
    forest.add_nodes(np.array([0, 1, 1]), np.array([10, 5, 5]), np.array([40, 20, 20]))
    nodes = as_records(np.ascontiguousarray(forest.nodes))
    when, whole, part = np.full(4, -1), np.full(4, -1), np.zeros(4, np.int64)

    def ask(base: int, *queries: tuple[int, int]) -> list[int]:
        out = np.zeros(len(queries), np.int64)
        depths(nodes, np.array(queries), base, when, whole, part, out)
        return out.tolist()

    touch(nodes, np.array([[3, 2, 12], [7, 2, 15], [9, 3, 10]]), 0, when, whole, part)
    assert ask(0, (2, 2), (3, 2), (6, 2), (7, 2)) == [0, 12, 12, 15]
    assert ask(0, (3, 3), (9, 3), (9, 1), (9, 0)) == [10, 10, 10, 0]  # limit 10: nothing of node 3 itself
    assert ask(10, (99, 2)) == [0]  # what came before is of an earlier use
    touch(nodes, np.array([[11, 3, 15]]), 10, when, whole, part)
    assert ask(10, (10, 3), (11, 3), (11, 2)) == [0, 15, 10]
