from __future__ import annotations

import numpy as np

from kvgym.forest.diskforest import DiskForest
from kvgym.forest.forest import Forest


def test_insert__the_same_forest_as_in_memory(tmp_path):
    rng = np.random.default_rng(5)
    memory, disk = Forest(), DiskForest(tmp_path / "ids", 4.0)
    for _ in range(200):
        ids = rng.integers(0, 3, rng.integers(1, 30)) if rng.random() < 0.9 else rng.integers(0, 9, 500)
        assert memory.insert(ids) == disk.insert(ids)
    assert np.array_equal(memory.nodes, disk.nodes)
    assert (tmp_path / "ids").stat().st_size > 8 * 500
    last = len(disk) - 1
    tokens = int(disk.nodes["end"][last])
    assert np.array_equal(memory.materialise(last, tokens, 10), disk.materialise(last, tokens, 10))


def test_insert__a_large_file_does_not_double(tmp_path, monkeypatch):
    monkeypatch.setattr("kvgym.forest.diskforest._MOST_GROWTH_IDS", 1000)
    disk = DiskForest(tmp_path / "ids", 4.0)
    for first in range(0, 20_000, 500):
        disk.insert(np.arange(first, first + 500))
    assert 8 * 20_000 <= (tmp_path / "ids").stat().st_size <= 8 * 21_000
