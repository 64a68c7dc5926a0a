from __future__ import annotations

import doctest

import pytest
from gymnasium.spaces import Discrete

import kvgym
from controllers.routing.random import Random
from kvgym.errors import ConfigError, UnknownNameError
from kvgym.harness.compare.evaluate import evaluate
from kvgym.harness.tools.comparison import compare


class Last:
    """Has the `predict` of a trained model."""

    def predict(self, observation, state=None, episode_start=None, deterministic=True):
        return len(observation["workers"]) - 1, state


def numbers(cells):
    return {
        cell.labels[3]: (cell.seeds, cell.per_seed, cell.metrics, cell.ratios)
        for cell in cells
        if cell.labels[2] in ("random", "Random")
    }


@pytest.mark.parametrize("policy", ["random", "controllers.routing.random:Random", Random()])
def test_evaluate__gives_the_numbers_of_compare(grid, tmp_path, policy):
    compared = compare(grid, tmp_path / "out", jobs=1).summary
    results = kvgym.evaluate(policy, grid)
    renamed = [cell for cell in results.cells if cell.labels[2] != "round_robin"]
    assert results.baseline == compared.baseline == ("round_robin", "lru")
    assert [(cell.seeds, cell.per_seed, cell.metrics, cell.ratios) for cell in renamed] == list(
        numbers(compared.cells).values()
    )
    assert results.cells[0].per_seed == compared.cells[0].per_seed
    assert len(results.cells) == 3


def test_evaluate__a_model_with_predict(grid):
    results = evaluate(Last(), {**grid, "eviction": ["lru"]}, seeds=[4, 9])
    base, ours = results.cells
    assert (base.labels[2:], ours.labels[2:]) == (("round_robin", "lru"), ("Last", "lru"))
    assert (ours.seeds, ours.mean("busiest_share")) == ((4, 9), 1.0)
    assert ours.ratios["p50_latency_s"][0] > 1


class ForFour(Last):
    """Was trained for another fleet, as a model of stable-baselines3 says it."""

    action_space = Discrete(4)


def test_evaluate__a_model_of_another_fleet_size(grid):
    with pytest.raises(ConfigError, match="the ForFour model was trained for 4 workers, this fleet has 2; train it"):
        evaluate(ForFour(), grid)
    four = {**grid, "clusters": [{"use": {"workers": 4, "capacity_tokens": 1000}, "name": "four"}], "seeds": 1}
    assert evaluate(ForFour(), four).cells[-1].mean("completed") == 32


def test_evaluate__the_baseline_itself_gets_a_name_of_its_own(grid):
    results = evaluate("round_robin", {**grid, "eviction": ["lru"]}, seeds=1)
    assert [cell.labels[2] for cell in results.cells] == ["round_robin", "round_robin (policy)"]
    assert results.cells[1].ratios["p50_latency_s"][0] == 1.0


@pytest.mark.parametrize(
    ("policy", "error", "message"),
    [
        ("lbrg", UnknownNameError, "did you mean 'lbgr'"),
        (Random, ConfigError, r"must be an object, got the class Random; give Random\(\)"),
        (3, ConfigError, r"or have predict\(\); got int"),
    ],
)
def test_evaluate__what_is_no_policy(grid, policy, error, message):
    with pytest.raises(error, match=message):
        evaluate(policy, grid)


def test_evaluate__a_wrong_configuration(grid):
    with pytest.raises(UnknownNameError, match="did you mean 'quickstart'"):
        evaluate("random", "quickstrat")
    with pytest.raises(ConfigError, match="seeds must be distinct"):
        evaluate("random", grid, seeds=[1, 1])


def test_kvgym__has_no_other_lazy_names():
    with pytest.raises(AttributeError, match="has no attribute 'evaluat'"):
        kvgym.evaluat  # noqa: B018 - the look-up is what is tested


def test_evaluate__its_docstring_is_true():
    import kvgym.harness.compare.evaluate as module

    failed, tried = doctest.testmod(module)
    assert (failed, tried > 4) == (0, True)


def test_evaluate__a_fleet_that_idles_beside_one_shared_prefix_is_flagged_with_the_rule_that_allows_it(grid):
    """Prompts share 95 %; at one a second nothing waits, and a second copy of that is not worth its time."""
    source = {
        "source": "gsp",
        "groups": 1,
        "prompts_per_group": 60,
        "lens": [8192],
        "prefix_ratio": 0.95,
        "rate_rps": 1.0,
    }
    grid = {
        **grid,
        "workloads": [{"use": source, "name": "one"}],
        "clusters": ["l40x4"],
        "eviction": ["lru"],
        "seeds": 1,
    }
    summary = evaluate("lbgr", grid)
    (flag,) = next(cell.flags for cell in summary.cells if cell.labels[2] == "lbgr")
    assert "went to one worker" in flag
    assert "its rule allows that: a second copy of a prefix" in flag
