from __future__ import annotations

import numpy as np
import pytest

from kvgym.errors import WorkloadError
from kvgym.workloads.ladder import Ladder

SMALL = {"groups": 3, "prompts_per_group": 2, "system_tokens": 40, "question_tokens": 8, "output_tokens": 5}


@pytest.mark.parametrize("arrivals", ["constant", "poisson"])
def test_ladder__each_stage_goes_through_the_pool_from_its_first_prompt(arrivals):
    ladder = Ladder(**SMALL, stages=((2.0, 4.0), (3.0, 2.5)), arrivals=arrivals, gap_s=100.0)
    load = ladder.generate(1)
    stage, nodes = ladder.stage_of(load.requests["arrival_s"]), load.requests["prompt_node"]
    assert np.bincount(stage).tolist() == [8, 7]
    assert nodes[:6].tolist() == nodes[8:14].tolist() and len(set(nodes[:6].tolist())) == 6
    assert nodes[6:8].tolist() == nodes[:2].tolist()
    system = load.forest.nodes["parent"][nodes]
    assert system[:3].tolist() == system[3:6].tolist() and len(set(system[:3].tolist())) == 3
    assert (load.requests["prompt_tokens"] == 48).all()
    assert len(set(load.requests["output_node"].tolist())) == 15  # no two answers are alike
    assert (np.diff(load.requests["arrival_s"]) >= 0).all()


def test_ladder__constant_fills_the_stage():
    arrival_s = (
        Ladder(**SMALL, stages=((2.0, 4.0), (3.0, 2.5)), arrivals="constant", gap_s=100.0)
        .generate(3)
        .requests["arrival_s"]
    )
    assert arrival_s[[7, 14]].tolist() == pytest.approx([4.0, 102.5])


def test_ladder__poisson_has_the_rate():
    arrival_s = Ladder(**SMALL, stages=((50.0, 100.0),)).generate(3).requests["arrival_s"]
    assert len(arrival_s) == 5000 and arrival_s[-1] == pytest.approx(100.0, rel=0.05)


def test_ladder__pages():
    load = Ladder(**SMALL, stages=((2.0, 4.0),)).generate(1, 16)
    assert (load.forest.nodes["end"][load.requests["prompt_node"]] == 48).all()


@pytest.mark.parametrize("stages", [(), ((0.0, 5.0),), ((0.1, 5.0),), ((1.0, 1e9),), ((2.0, 20_000.0),)])
def test_ladder__stages_without_sense(stages):
    with pytest.raises(WorkloadError, match=r"ladder: (stages|gap_s) must"):
        Ladder(stages=stages)
