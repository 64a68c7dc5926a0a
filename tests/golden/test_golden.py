"""Exact counts of every policy on one fixed workload: no change of behaviour passes unnoticed.

One file per name. This writes those of new policies; after a change that is meant, ``--all`` writes every one anew, and
the difference is committed with its reason::

    PYTHONPATH=. python tests/golden/test_golden.py

The workload is made with integers alone (no numpy generator), the costs are exact in binary.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from controllers.eviction import EVICTION
from controllers.routing import ROUTING
from kvgym.backends.simulated import SimulatedBackend
from kvgym.config.cluster import ClusterConfig
from kvgym.types import DONE
from kvgym.workloads.base import Workload
from kvgym.workloads.fixed import Fixed

ROUTERS = [name for name in ROUTING if name != "learned"]  # that one does what its file says
HERE = Path(__file__).resolve().parent
CAPACITIES = (2_500, 5_000, 10_000)
REQUESTS = 2_000
COST = {"model": "linear", "p0_ms": 31.25, "p_tok_ms": 0.9765625, "d0_ms": 15.625, "d_seq_ms": 0.48828125}


def numbers(seed: int = 1) -> Iterator[int]:
    """A stream of 31-bit numbers (Lehmer's generator with Park and Miller's constants)."""
    while True:
        seed = seed * 48271 % 0x7FFFFFFF
        yield seed


@cache
def workload() -> Workload:
    """2,000 requests: 40 shared prefixes of uneven popularity, a third of them in sessions of up to four turns."""
    draw = numbers()
    rows: list[dict[str, Any]] = []
    session = 0
    while len(rows) < REQUESTS:
        session += 1
        group = min(next(draw) % 40, next(draw) % 40)
        path: list[list[Any]] = [[f"group {group}", 40 + 17 * (group % 9)]]
        turns = 1 if next(draw) % 3 else 2 + next(draw) % 3
        for turn in range(min(turns, REQUESTS - len(rows))):
            path = [*path, [f"question {session}.{turn}", 5 + next(draw) % 60]]
            output = 1 + next(draw) % 24
            row = {"path": path, "output_tokens": output, "answer": f"answer {session}.{turn}", "session": session}
            rows.append({**row, "arrival_s": session / 32, "think_s": next(draw) % 8 / 4, "priority": session % 3})
            path = [*path, [row["answer"], output]]
    return Fixed(tuple(rows)).generate(0)


def play(routing: str, eviction: str, workers: int, capacity: int) -> np.ndarray:
    """Return the records of one run."""
    cluster = ClusterConfig(
        workers=workers, capacity_tokens=capacity, chunk_tokens=256, cost=COST, ignore_eos=False, max_running=64
    )
    backend = SimulatedBackend(workload(), cluster, eviction, seed=1)
    router = ROUTING.load(routing)()
    router.reset(backend.spec, 1)
    while (decision := backend.run_to_decision()) is not None:
        router.observe(backend.completions())
        backend.apply(router.act(decision))
    records = backend.records()
    assert (records["status"] == DONE).all() and len(records) == REQUESTS
    return records


def hits(eviction: str) -> dict[str, int]:
    """Hit tokens on one worker per capacity."""
    return {str(size): int(play("round_robin", eviction, 1, size)["hit_tokens"].sum()) for size in CAPACITIES}


def histogram(routing: str) -> list[int]:
    """Requests per worker, four workers."""
    return np.bincount(play(routing, "lru", 4, CAPACITIES[0])["worker"], minlength=4).tolist()


def stored(kind: str, name: str) -> Any:
    """Return what the file of a name holds."""
    file = HERE / kind / f"{name}.json"
    assert file.is_file(), f"{name} is new: PYTHONPATH=. python tests/golden/test_golden.py writes {kind}/{name}.json"
    return json.loads(file.read_text(encoding="utf-8"))


@pytest.mark.parametrize("eviction", list(EVICTION))
def test_eviction__hits_are_the_stored_ones(eviction: str) -> None:
    assert hits(eviction) == stored("eviction", eviction)


@pytest.mark.parametrize("routing", ROUTERS)
def test_routing__shares_are_the_stored_ones(routing: str) -> None:
    assert histogram(routing) == stored("routing", routing)


def test_stored__tells_the_policies_apart() -> None:
    """Every pair of eviction policies differs in at least one count, and more memory never costs hits by much."""
    for kind, names in (("eviction", EVICTION), ("routing", ROUTERS)):
        assert {file.stem for file in (HERE / kind).glob("*.json")} == set(names)
    counts = {name: stored("eviction", name) for name in EVICTION}
    assert len({tuple(row.values()) for row in counts.values()}) == len(counts)
    for row in counts.values():
        assert row["2500"] < row["5000"] < row["10000"]


def write(again: bool) -> None:
    """Write the counts of the present code: of names that have no file, or of all `again`."""
    for kind, function, names in (("eviction", hits, EVICTION), ("routing", histogram, ROUTERS)):
        for name in names:
            file = HERE / kind / f"{name}.json"
            if again or not file.is_file():
                file.parent.mkdir(exist_ok=True)
                file.write_text(json.dumps(function(name)) + "\n", encoding="utf-8")
                print(file)


if __name__ == "__main__":
    write("--all" in sys.argv)
