"""llm-d's scorers by hand; what holds for every router is tested elsewhere."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest

from controllers.routing.llmd_default import LlmdDefault
from controllers.routing.llmd_precise import LlmdPrecise


@pytest.fixture
def at(ask: Any) -> Any:
    """Return a decision about a prompt of 200 tokens in 200 characters: hits, queues, KV use of pools of 1,000."""

    def decision(hit: list[int], queued: list[int], used: list[int], node: int = 2, mask: Any = None) -> Any:
        made = ask(node, [0] * len(hit), mask=mask)
        metrics = {"hit_tokens": np.array(hit), "queued": np.array(queued), "kv_used_tokens": np.array(used)}
        return dataclasses.replace(made, **metrics)

    return decision


def made(cls: Any, start: Any, **options: Any) -> Any:
    return start(cls(**options), 3)


@pytest.mark.parametrize(
    ("hit", "queued", "used", "worker"),
    [
        ([100, 0, 0], [0, 0, 0], [0, 0, 0], 0),  # 2 + 1 + 1 against 1 + 1
        ([100, 50, 0], [1, 0, 0], [0, 0, 0], 0),  # 2 + 0 + 1 against 0 + 1 + 1: the worst hit is worth nothing
        ([100, 99, 0], [3, 0, 3], [900, 0, 0], 0),  # 2 + 0 + .1 against 0 + 1 + 1
        ([100, 100, 0], [1, 0, 2], [0, 0, 0], 1),  # equal hits are 2 each; one waiting request moves half the weight
        ([0, 0, 0], [2, 1, 2], [0, 0, 0], 1),
        ([0, 0, 0], [1, 1, 1], [500, 400, 300], 2),
    ],
)
def test_precise__scores(start: Any, at: Any, hit: list[int], queued: list[int], used: list[int], worker: int) -> None:
    assert made(LlmdPrecise, start).act(at(hit, queued, used)) == worker


def test_load__without_a_prefix_weight(start: Any, at: Any) -> None:
    assert made(LlmdPrecise, start, prefix=0.0).act(at([100, 0, 0], [1, 0, 0], [0, 10, 0])) == 2


def test_mask__counts_in_no_range(start: Any, at: Any) -> None:
    """Without worker 2, whose queue is the longest, one request more costs the whole weight."""
    choice = at([0, 0, 0], [0, 1, 100], [300, 0, 0], mask=[True, True, False])
    assert made(LlmdPrecise, start).act(choice) == 0


def test_default__goes_by_what_it_has_sent(start: Any, at: Any) -> None:
    router = made(LlmdDefault, start)
    first = router.act(at([0, 0, 0], [0, 0, 0], [0, 0, 0]))
    assert router.act(at([0, 0, 0], [0, 0, 0], [0, 0, 0])) == first
    others = [500 if worker == first else 0 for worker in range(3)]
    assert router.act(at([0, 0, 0], [0, 0, 0], others)) == first  # 2 + 1 + .5 against 1 + 1
    assert router.act(at([0, 0, 0], [int(w == first) for w in range(3)], [10 * w for w in others])) != first


def test_default__sees_no_more_than_the_first_blocks(start: Any, at: Any) -> None:
    """Node 2 and node 4 begin alike; with one block of 64 characters looked at they are the same."""
    router = made(LlmdDefault, start, max_blocks=1)
    first = router.act(at([0, 0, 0], [0, 0, 0], [0, 0, 0], node=2))
    assert router.index.tokens[first] == router._seen_tokens(at([0, 0, 0], [0, 0, 0], [0, 0, 0]))


def test_default__forgets_beyond_its_bound(start: Any, at: Any) -> None:
    router = made(LlmdDefault, start, lru_blocks=1)
    worker = router.act(at([0, 0, 0], [0, 0, 0], [0, 0, 0]))
    decision = at([0, 0, 0], [0, 0, 0], [0, 0, 0])
    assert router.index.tokens[worker] <= 64 * decision.prompt_tokens / decision.prompt_chars
