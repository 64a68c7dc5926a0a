from __future__ import annotations

import numpy as np

from kvgym.types import REQUEST
from kvgym.workloads.building.regions import with_regions
from kvgym.workloads.fixed import Fixed
from kvgym.workloads.gsp import GSP


def test_regions__are_drawn_for_whole_sessions_and_touch_nothing_else():
    rows = [{"path": [["a", 4]], "session": i // 3} for i in range(300)]
    load = Fixed(tuple(rows)).generate(0)
    drawn = with_regions(load, 4, seed=1)
    region = drawn.requests["region"]
    assert (region.reshape(100, 3) == region[::3, None]).all()
    assert (np.bincount(region[::3]) > 12).all() and len(np.bincount(region)) == 4
    assert not load.requests["region"].any()
    for name in REQUEST.names:
        assert name == "region" or (drawn.requests[name] == load.requests[name]).all()
    assert drawn.forest is load.forest


def test_regions__come_from_the_seed():
    load = GSP(groups=8, prompts_per_group=8).generate(0)
    drawn = [with_regions(load, 3, seed).requests["region"].tolist() for seed in (1, 1, 2)]
    assert drawn[0] == drawn[1] != drawn[2]


def test_regions__a_workload_that_names_them_or_a_single_one_stays_as_it_is():
    load = Fixed(({"path": [["a", 4]]}, {"path": [["a", 4]], "region": 2})).generate(0)
    assert load.requests["region"].tolist() == [0, 2]
    assert with_regions(load, 5, seed=1) is load
    plain = Fixed(({"path": [["a", 4]]},)).generate(0)
    assert with_regions(plain, 1, seed=1) is plain
