from __future__ import annotations

import numpy as np
import pytest

from kvgym.encoding.offers import CACHE_FEATURES, CANDIDATE_FEATURES, encode_eviction, eviction_space
from kvgym.types import CANDIDATE, EvictionDecision


def decision(rows: np.ndarray, places: int, **totals: int) -> EvictionDecision:
    names = ("need", "free", "evictable", "capacity")
    tokens = {f"{name}_tokens": totals.get(name, 10) for name in names}
    counts = {name: totals.get(name, 1) for name in ("leaves", "unmarked", "running", "queued")}
    mask = np.arange(places) < len(rows)
    return EvictionDecision(time_s=0.0, worker=0, candidates=rows, mask=mask, **tokens, **counts)


@pytest.mark.parametrize("value", [0, 2**31 - 1])
def test_bounds__hold_in_overload(value):
    rows = np.zeros(3, CANDIDATE)
    for name in rows.dtype.names:
        rows[name] = min(value, 1) if name in ("marked", "open") else value
    rows["priority"] = [-value, value, 0]
    names = ("need", "free", "evictable", "leaves", "running", "queued")
    seen = encode_eviction(decision(rows, 5, **dict.fromkeys(names, value), unmarked=value, capacity=1))
    space = eviction_space(5)
    assert space.contains(seen)
    assert (seen["candidates"][3:] == 0).all()
    assert seen["candidates"].shape == (5, len(CANDIDATE_FEATURES)) and seen["cache"].shape == (len(CACHE_FEATURES),)
    assert abs(seen["candidates"][0, :7]).max() == float(value > 0)


def test_columns__each_follows_its_field():
    columns = {feature.name: i for i, feature in enumerate(CANDIDATE_FEATURES)}
    assert list(columns) == list(CANDIDATE.names)
    for name, column in columns.items():
        row = np.zeros(1, CANDIDATE)
        row[name] = 1
        seen = encode_eviction(decision(row, 1))["candidates"][0]
        assert np.flatnonzero(seen).tolist() == [column]


def test_cache__each_number_has_its_place():
    totals = {"need": 25, "free": 50, "evictable": 75, "capacity": 100, "leaves": 8, "unmarked": 2}
    seen = encode_eviction(decision(np.zeros(0, CANDIDATE), 1, **totals, running=3, queued=0))["cache"]
    assert seen[[1, 2, 3, 6, 8]].tolist() == [0.25, 0.5, 0.75, 0.25, 0.0]
    assert seen[7] == pytest.approx(np.log(4) / np.log(4097))
