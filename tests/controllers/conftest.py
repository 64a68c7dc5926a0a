"""A hand-written forest and a maker of decisions for the router tests."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from kvgym.forest.forest import Forest
from kvgym.types import RECORD, Decision, FleetSpec


@pytest.fixture
def forest() -> Forest:
    """Root - 1 "A" - {2, 3}; root - 4 "B" - 5 "BA"; root - 6. 100 tokens each (6: 10), four characters a token."""
    forest = Forest()
    forest.add_nodes(np.array([0, 1, 1, 0, 4, 0]), np.array([100, 100, 100, 100, 100, 10]), np.array([400] * 5 + [40]))
    return forest


@pytest.fixture
def fleet(forest: Forest) -> Callable[[int], FleetSpec]:
    return lambda workers: FleetSpec(workers, (1000,) * workers, 1, forest)


@pytest.fixture
def start(fleet: Callable[[int], FleetSpec]) -> Callable[..., Any]:
    """Return a function that begins an episode of a router on so many workers, and returns the router."""

    def begin(router: Any, workers: int, seed: int = 0) -> Any:
        router.reset(fleet(workers), seed)
        return router

    return begin


@pytest.fixture
def ask(forest: Forest) -> Callable[..., Decision]:
    """Return a function that makes a decision for a node; lists are per worker, the mask allows all by default."""

    def make(
        node: int,
        inflight: list[int],
        time_s: float = 0.0,
        request: int = 0,
        prompt_chars: int | None = None,
        mask: list[bool] | None = None,
        incarnation: list[int] | None = None,
    ) -> Decision:
        zeros = np.zeros(len(inflight), np.int64)
        record = forest.nodes[node]
        return Decision(
            time_s=time_s,
            request=request,
            node=node,
            prompt_tokens=int(record["end"]),
            prompt_chars=int(record["chars_end"]) if prompt_chars is None else prompt_chars,
            max_new_tokens=4,
            session=0,
            turn=0,
            priority=0,
            inflight=np.array(inflight),
            inflight_tokens=zeros,
            running=zeros,
            queued=zeros,
            kv_used_tokens=zeros,
            kv_capacity_tokens=zeros + 1000,
            mask=np.ones(len(inflight), bool) if mask is None else np.array(mask),
            incarnation=None if incarnation is None else np.array(incarnation),
        )

    return make


@pytest.fixture
def finished() -> Callable[..., np.ndarray]:
    """Return a function that makes RECORD rows from (request, status, finish_s) rows."""

    def make(*rows: tuple[int, int, float]) -> Any:
        records = np.zeros(len(rows), RECORD)
        for record, row in zip(records, rows, strict=True):
            record["request"], record["status"], record["finish_s"] = row
        return records

    return make
