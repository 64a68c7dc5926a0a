from __future__ import annotations

import numpy as np
import pytest

from kvgym.backends.base import Progress
from kvgym.envs.rewards.weighted import WeightedReward
from kvgym.errors import ConfigError, UnknownNameError
from kvgym.types import RECORD

BEFORE, AFTER = Progress(1.0, 10.0, 4.0, 2.0), Progress(3.0, 16.0, 5.0, 2.5)
RECORDS = np.zeros(3, RECORD)


def finished(before: Progress, after: Progress, records: np.ndarray) -> float:
    return len(records)


@pytest.mark.parametrize(("name", "value"), [("latency", -6.0), ("ttft", -1.0), ("makespan", -0.5)])
def test_term__is_minus_the_increase(name, value):
    assert WeightedReward(name)(BEFORE, AFTER, RECORDS) == (value, {name: value})


def test_weights__sum_the_terms_and_leave_them_unweighted():
    reward, terms = WeightedReward({"latency": 0.5, "ttft": 2})(BEFORE, AFTER, RECORDS)
    assert (reward, terms) == (-5.0, {"latency": -6.0, "ttft": -1.0})


def test_own_term__is_named_by_its_import_path(monkeypatch):
    import sys

    monkeypatch.setitem(sys.modules, "my_rewards", sys.modules[__name__])
    reward, terms = WeightedReward({"my_rewards:finished": 2.0})(BEFORE, AFTER, RECORDS)
    assert (reward, terms) == (6.0, {"my_rewards:finished": 3.0})


def test_file__holds_the_map(tmp_path):
    path = tmp_path / "reward.yaml"
    path.write_text("latency: 1.0\nttft: 0.1\n")
    assert WeightedReward(str(path)).weights == {"latency": 1.0, "ttft": 0.1}


def test_unknown_term__names_the_nearest():
    with pytest.raises(UnknownNameError, match="unknown reward term 'latencyy'; did you mean 'latency'"):
        WeightedReward("latencyy")


@pytest.mark.parametrize("given", [{}, {"latency": "much"}, {"latency": float("inf")}, {"latency": True}])
def test_wrong_map__is_an_error(given):
    with pytest.raises(ConfigError, match="reward"):
        WeightedReward(given)
