"""Arrays that grow with the episode: what is asked for is what is given."""

from __future__ import annotations

from typing import Any

import numpy as np

from kvgym.engine.growth import grow
from kvgym.engine.serving.loop import must_grow
from kvgym.types import DONE


def test_grow__gives_what_the_engine_asks_for(build: Any) -> None:
    """However many requests wait and however large the limits are; else the engine would ask for ever."""
    engine = build([{"path": [["a", 4]]}], chunk=1 << 40, prefill=1 << 40, max_running=1 << 20, check=0)
    for queued in (0, 500, 140_000):
        engine.cache.workers["queued"] = queued
        engine.cache = grow(engine.cache)
        assert not must_grow(engine.cache, 0)
    assert must_grow(engine.cache._replace(order=engine.cache.order[:, :100].copy()), 0)


def test_grow__does_not_change_the_episode(build: Any, drain: Any) -> None:
    """Thousands of requests at once outgrow slots and leaves while steps run; nothing depends on the arrays' sizes."""
    rows = [{"path": [[i % 50, 20], [i, 5]], "output_tokens": 2} for i in range(3000)]
    records = []
    for early in (False, True):
        engine = build(rows, "rlt", [20_000, 40_000], check=0)
        first = len(engine.cache.slots)
        if early:
            engine.cache.workers["queued"] = 5000
            engine.cache = grow(engine.cache)
            engine.cache.workers["queued"] = 0
        records.append(drain(engine, lambda request: request % 2))
        assert len(engine.cache.slots) > first
        assert (records[-1]["status"] == DONE).all()
    assert np.array_equal(records[0], records[1])
