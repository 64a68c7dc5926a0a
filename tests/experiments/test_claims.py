import pytest

from kvgym.errors import ConfigError
from kvgym.experiments.claims import Claim, judge

A, B, C = {"routing": "a"}, {"routing": "b"}, {"routing": "c"}


def cells(**latency):
    """Cells ``w_router`` of one fleet, with the P50s of two seeds."""
    return {
        (name.split("_")[0], "fleet", name.split("_")[1], "lru"): {"p50_latency_s": values, "hit_rate": values}
        for name, values in latency.items()
    }


def verdict(found, **claim):
    return judge(Claim(**{"say": "it", "metric": "p50_latency_s", "cell": A, **claim}), found).verdict


def test_within__is_a_factor_either_way():
    found = cells(w_a=[1.9, 2.1])
    assert verdict(found, published=2.5, within=1.3) == "holds"
    assert verdict(found, published=1.6, within=1.3) == "holds"
    assert verdict(found, published=2.7, within=1.3) == "does not hold"
    assert verdict(found, published=1.5, within=1.3) == "does not hold"


def test_points__are_hundredths():
    found = cells(w_a=[0.30, 0.34])
    assert verdict(found, metric="hit_rate", published=0.335, points=2) == "holds"
    assert verdict(found, metric="hit_rate", published=0.345, points=2) == "does not hold"


def test_factor__says_how_much_better_the_cell_is():
    found = cells(w_a=[1.0, 2.0], w_b=[3.0, 6.0])
    by_latency = judge(Claim("it", "p50_latency_s", A, B, between=(2.9, 3.1)), found)
    assert by_latency.verdict == "holds"
    assert by_latency.ours[("w", "fleet")][0] == pytest.approx(3.0)
    by_hits = judge(Claim("it", "hit_rate", B, A, between=(2.9, 3.1)), found)
    assert by_hits.verdict == "holds"


def test_shapes__are_about_every_workload():
    found = cells(u_a=[1.0, 1.0], u_b=[2.0, 2.0], v_a=[1.0, 1.0], v_b=[4.0, 4.0])
    assert verdict(found, against=B, shape="ahead") == "holds"
    assert verdict(found, against=B, shape="widens") == "holds"
    assert verdict(found, against=B, shape="average", published=3.2) == "holds"
    assert verdict(found, against=B, shape="average", published=5.0) == "does not hold"
    assert verdict(found, shape="curve") == "shown"
    behind = {**found, **cells(v_b=[0.9, 0.9])}
    assert verdict(behind, against=B, shape="ahead") == "does not hold"
    assert verdict(behind, against=B, shape="widens") == "does not hold"


@pytest.mark.parametrize(
    ("other", "expected"),
    [([8.0, 8.0], "stands"), ([1.2, 1.2], "weakens"), ([0.5, 0.5], "flips"), ([0.1, 5.0], "weakens")],
)
def test_fair__asks_what_another_opponent_leaves(other, expected):
    found = cells(w_a=[1.0, 1.0], w_b=[8.0, 8.0], w_c=other)
    assert verdict(found, against=B, fair={"against": C}) == expected


def test_fair__may_be_another_setting():
    found = cells(u_a=[1.0, 1.0], u_b=[8.0, 8.0], v_a=[1.0, 1.0], v_b=[1.1, 1.1])
    claim = {"cell": {"workload": "u", **A}, "against": B, "fair": {"cell": {"workload": "v", **A}}}
    assert verdict(found, **claim) == "weakens"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({}, "needs one of within"),
        ({"within": 1.3}, "need the published figure"),
        ({"within": 1.3, "points": 2, "published": 1.0}, "needs one of within"),
        ({"metric": "p50"}, "unknown metric 'p50'"),
        ({"shape": "ahead"}, "needs `against`"),
        ({"cell": {"router": "a"}, "shape": "curve"}, "a cell is named by workload.*'router'"),
        ({"between": (1.0,)}, r"between is \[low, high\]"),
        ({"against": B, "fair": {"published": B}}, "fair may change cell and against"),
        ({"cell": {"routing": "z"}, "between": (0.0, 1.0)}, "names 0 cells"),
        ({"cell": {}, "between": (0.0, 1.0)}, "names several cells"),
    ],
)
def test_mistakes__are_named(change, message):
    with pytest.raises(ConfigError, match=message):
        judge(Claim(**{"say": "it", "metric": "p50_latency_s", "cell": A, **change}), cells(w_a=[1.0], w_b=[1.0]))
