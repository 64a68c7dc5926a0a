"""What an oracle is told, and where it is refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from controllers.eviction import belady
from kvgym.engine.future import admission_order, future_uses
from kvgym.engine.handle import CacheHandle
from kvgym.errors import ConfigError
from kvgym.forest.forest import Forest
from kvgym.workloads.fixed import Fixed

ROWS = (
    {"path": [["a", 3], ["x", 2]]},
    {"path": [["a", 3], ["y", 2]], "arrival_s": 1.0},
    {"path": [["b", 4]], "arrival_s": 2.0},
    {"path": [["a", 3], ["x", 2]], "arrival_s": 3.0},
)
POOL = np.array([100])


def uses(workload: Any, row: np.ndarray, node: int) -> list[float]:
    at = int(row[node])
    return row[at : at + int(np.argmax(np.isinf(row[at:])))].tolist()


def test_future_uses__per_node_in_order() -> None:
    workload = Fixed(ROWS).generate(0)
    row = future_uses(workload, POOL, None, None, True)
    first, _, other, _ = workload.requests["prompt_node"].tolist()
    assert uses(workload, row, first) == [0, 3]
    assert uses(workload, row, other) == [2]
    assert uses(workload, row, int(workload.forest.nodes["parent"][first])) == [0, 1, 3]


def test_future_uses__prompts_that_are_rejected_do_not_count() -> None:
    workload = Fixed((ROWS[0], {"path": [["huge", 200]], "arrival_s": 0.5}, *ROWS[1:])).generate(0)
    row = future_uses(workload, POOL, None, None, True)
    assert uses(workload, row, int(workload.requests["prompt_node"][0])) == [0, 3]
    assert np.isinf(future_uses(workload, np.array([2]), None, None, True)[len(workload.forest.nodes) :]).all()


def test_admission_order__one_client_answers_in_turn() -> None:
    rows = [{"path": [[name, 2]], "session": name} for name in ("s", "t", "s", "t")]
    assert admission_order(Fixed(tuple(rows), clients=1).generate(0)).tolist() == [0, 2, 1, 3]
    with pytest.raises(ConfigError, match="recorded arrivals, or one client"):
        admission_order(Fixed(tuple(rows), clients=2).generate(0))
    with pytest.raises(ConfigError, match="'fixed' requests follow the answers"):
        admission_order(Fixed(tuple(rows)).generate(0))


@pytest.mark.parametrize(
    ("pool", "changes", "network_s", "allowed", "message"),
    [
        (POOL, None, None, False, "bounds: true"),
        (np.array([100, 100]), None, None, True, "one worker"),
        (POOL, np.zeros(1), None, True, "never fails"),
        (POOL, None, np.zeros((2, 1)), True, "one region"),
    ],
)
def test_future_uses__refused(pool: Any, changes: Any, network_s: Any, allowed: bool, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        future_uses(Fixed(ROWS).generate(0), pool, changes, network_s, allowed)


def test_handle__has_no_future() -> None:
    with pytest.raises(ConfigError, match="no known future"):
        CacheHandle(Forest().nodes, belady.POLICY, 10)
