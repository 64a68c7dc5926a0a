"""Who holds what, counted by hand; and on a busy fleet it adds up to what the workers account for."""

from __future__ import annotations

import numpy as np

from kvgym.engine.occupancy import prefixes_of, resident, top_level
from kvgym.engine.state import DECIDE
from kvgym.workloads.gsp import GSP

ROWS = [
    {"path": [["all", 10], ["a", 20], ["ask", 5]], "arrival_s": 0.0},
    {"path": [["all", 10], ["b", 30]], "arrival_s": 100.0},
    {"path": [["all", 10], ["a", 20], ["more", 7]], "arrival_s": 200.0},
]


def nodes_by_path(engine) -> dict[str, int]:
    """Return the forest nodes that the requests' prompts end in, and their parents, by what they stand for."""
    nodes, ends = engine.workload.forest.nodes, engine.workload.requests["prompt_node"]
    return {
        "ask": ends[0],
        "b": ends[1],
        "more": ends[2],
        "a": nodes["parent"][ends[0]],
        "all": nodes["parent"][ends[1]],
    }


def test_prefixes__begin_where_prompts_part(build):
    engine = build(ROWS)
    at, nodes = nodes_by_path(engine), engine.workload.forest.nodes
    assert top_level(nodes) == 2
    found = prefixes_of(nodes, np.array([at[name] for name in ("ask", "more", "a", "b", "all")] + [0]))
    assert found.tolist() == [at["a"], at["a"], at["a"], at["b"], at["all"], 0]


def test_top_level__of_a_forest_that_never_branches_is_the_deepest(build):
    nodes = build([{"path": [["a", 3], ["b", 4]]}]).workload.forest.nodes
    assert top_level(nodes) == nodes["level"].max() > 0


def test_resident__tokens_per_worker_and_prefix(build, drain):
    engine = build(ROWS, capacity=[500, 500])
    drain(engine, lambda request: request % 2)
    at = nodes_by_path(engine)
    # Worker 0 split request 0 where request 2 parted from it: at the end of "a", which stands for the trunk before it.
    assert resident(engine.cache).tolist() == [[0, at["a"], 10 + 20 + 5 + 7], [1, at["b"], 10 + 30]]


def test_resident__of_an_empty_cache_is_nothing(build):
    assert resident(build(ROWS).cache).shape == (0, 3)


def test_resident__adds_up_to_the_workers_accounts(build):
    load = GSP(groups=12, prompts_per_group=9, lens=(64, 100), rate_rps=None).generate(3, 4)
    engine = build(load, "rlt", [640, 900, 1200], page=4)
    while engine.run() == DECIDE:
        rows, workers = resident(engine.cache), engine.cache.workers
        per_worker = np.bincount(rows[:, 0], rows[:, 2], 3)
        assert per_worker.tolist() == (workers["evictable"] + workers["protected"]).tolist()
        assert (rows[:, 2] > 0).all() and (np.diff(rows[:, 0] * 10**6 + rows[:, 1]) > 0).all()
        engine.route(engine.pending % 3)
    assert workers["evicted"].min() > 0
