from __future__ import annotations

import inspect

import numpy as np
import pytest

from kvgym.backends.base import Progress
from kvgym.envs.rewards import REWARDS
from kvgym.envs.rewards.base import of_integrals
from kvgym.envs.rewards.weighted import WeightedReward
from kvgym.errors import ConfigError, PluginError, SimulationError, UnknownNameError
from kvgym.types import DONE, FAILED, RECORD

BEFORE, AFTER = Progress(1.0, 10.0, 4.0, 2.0), Progress(3.0, 16.0, 5.0, 2.5)
RECORDS = np.zeros(3, RECORD)


class Scaled:
    def __init__(self, factor: int) -> None:
        self.factor = factor

    def __call__(self, before: Progress, after: Progress, records: np.ndarray) -> float:
        return self.factor * len(records)


def answered(*rows: tuple) -> np.ndarray:
    """Return RECORD rows from (arrival, first token, finish[, status]), ten tokens each."""
    out = np.zeros(len(rows), RECORD)
    out["output_tokens"] = 10
    for record, (arrival_s, first_s, finish_s, *status) in zip(out, rows, strict=True):
        record["arrival_s"], record["first_token_s"], record["finish_s"] = arrival_s, first_s, finish_s
        record["status"] = status[0] if status else DONE
    return out


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


def test_file__may_give_options(tmp_path):
    path = tmp_path / "reward.yaml"
    path.write_text("slo: {weight: 2, latency_s: 3.5}\n")
    reward, terms = WeightedReward(str(path))(BEFORE, AFTER, answered((0.0, 1.0, 3.5), (0.0, 1.0, 4.0)))
    assert (reward, terms) == (2.0, {"slo": 1.0})


def test_slo__counts_answers_within_every_limit():
    rows = answered((0.0, 1.0, 3.0), (0.0, 2.5, 3.0), (5.0, 6.0, 20.0), (1.0, 2.0, 3.0, FAILED))
    for options, count in (({"ttft_s": 1.0}, 2), ({"ttft_s": 1.0, "latency_s": 3.0}, 1), ({"latency_s": 15.0}, 3)):
        assert WeightedReward({"slo": options})(BEFORE, AFTER, rows) == (count, {"slo": count})


def test_cache__counts_the_tokens_of_answered_requests_only():
    rows = answered((0.0, 1.0, 3.0), (0.0, 2.5, 3.0), (1.0, 2.0, 3.0, FAILED))
    rows["hit_tokens"] = 7, 5, 100
    assert WeightedReward({"cache": 0.5})(BEFORE, AFTER, rows) == (6.0, {"cache": 12.0})


def test_callable__goes_by_its_name():
    class Waiting:
        def __call__(self, before, after, records):
            return before.no_token_s - after.no_token_s

    assert WeightedReward(finished)(BEFORE, AFTER, RECORDS) == (3.0, {"finished": 3.0})
    assert WeightedReward(Waiting())(BEFORE, AFTER, RECORDS) == (-1.0, {"Waiting": -1.0})


def test_own_class__takes_its_options(monkeypatch):
    import sys

    monkeypatch.setitem(sys.modules, "my_rewards", sys.modules[__name__])
    reward, terms = WeightedReward({"my_rewards:Scaled": {"factor": 3, "weight": 2}})(BEFORE, AFTER, RECORDS)
    assert (reward, terms) == (18.0, {"my_rewards:Scaled": 9.0})
    with pytest.raises(ConfigError, match=r"'my_rewards:Scaled' does not take \{'facter': 3\}"):
        WeightedReward({"my_rewards:Scaled": {"facter": 3}})
    with pytest.raises(PluginError, match="'my_rewards:BEFORE' must be a function"):
        WeightedReward("my_rewards:BEFORE")


def test_nan__is_an_error_that_names_the_term():
    with pytest.raises(SimulationError, match=r"must be finite numbers, got \{'bad': nan\}"):

        def bad(before, after, records):
            return float("nan")

        WeightedReward(bad)(BEFORE, AFTER, RECORDS)


def test_unknown_term__names_the_nearest():
    with pytest.raises(UnknownNameError, match="unknown reward term 'latencyy'; did you mean 'latency'"):
        WeightedReward("latencyy")


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({}, "reward has no terms"),
        ({"latency": "much"}, "weight of 'latency' must be a finite number, got 'much'"),
        ({"latency": float("inf")}, "weight of 'latency' must be a finite number, got inf"),
        ({"slo": {"weight": float("nan"), "ttft_s": 1}}, "weight of 'slo' must be a finite number, got nan"),
        ({"latency": True}, "weight of 'latency' must be a finite number, got True"),
        ({"latency": None}, "weight of 'latency' must be a finite number, got None"),
        ({"latency": {"ttft_s": 1}}, "'latency' has no option 'ttft_s'"),
        ({3: 1.0}, "a term's name must be text, got 3"),
        (5, "reward must be a name, a map, a path or a callable, got 5"),
        ("slo", "reward.slo: a service level objective needs at least one limit of ttft_s, tpot_s, latency_s"),
        ({"slo": {"ttft": 1}}, "unknown key 'ttft' in reward.slo; did you mean 'ttft_s'"),
        ({"slo": {"ttft_s": -1}}, "reward.slo: ttft_s must be a number > 0, got -1"),
        ({"slo": {"ttft_s": "fast"}}, "reward.slo.ttft_s must be a number, got str"),
        ({"slo": {"ttft_s": float("nan")}}, "reward.slo.ttft_s must be a finite number, got nan"),
        ({"slo": [1]}, r"weight of 'slo' must be a finite number, got \[1\]"),
    ],
)
def test_wrong_reward__is_an_error(given, message):
    with pytest.raises(ConfigError, match=message):
        WeightedReward(given)


@of_integrals
def longest_wait(before: Progress, after: Progress, records: np.ndarray) -> float:
    return np.maximum(before.in_system_s - after.in_system_s, before.no_token_s - after.no_token_s)


def test_of_many__gives_each_episode_what_it_gets_alone():
    before = [Progress(1.0, 2.0, 3.0, 4.0), Progress(0.0, 0.5, 0.0, 0.0)]
    after = [Progress(2.0, 9.5, 3.5, 4.25), Progress(1.0, 0.75, 0.25, 8.0)]
    rows = [np.zeros(2, RECORD), np.zeros(0, RECORD)]
    rows[0]["status"], rows[0]["hit_tokens"] = DONE, 7
    together = [Progress(*np.array(each).T) for each in (before, after)]
    integrals = {"latency": 1.0, "ttft": 0.3, "makespan": 2.0}
    each_alone = [(name, rows.__getitem__) for name in REWARDS if not inspect.isclass(REWARDS.load(name))]
    both = {"cache": 0.5, "ttft": 1.0}
    for given, ended in ((integrals, None), (longest_wait, None), (both, rows.__getitem__), *each_alone):
        reward = WeightedReward(given)
        terms = reward.weights
        totals, values = reward.of_many(*together, ended)
        alone = [reward(*each) for each in zip(before, after, rows, strict=True)]
        assert totals.tolist() == [total for total, _ in alone]
        assert [{name: values[name][i] for name in terms} for i in range(2)] == [found for _, found in alone]


@pytest.mark.parametrize("value", [1.0, np.zeros(3), np.array([0.0, np.nan])], ids=["one", "three", "nan"])
def test_of_many__a_term_must_give_each_episode_a_finite_number(value):
    still = Progress(*np.zeros((4, 2)))
    with pytest.raises(SimulationError, match="a finite number per episode, got"):

        @of_integrals
        def wrong(before, after, records):
            return value

        WeightedReward(wrong).of_many(still, still, None)
