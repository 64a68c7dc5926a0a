from __future__ import annotations

import numpy as np
import pytest

from kvgym.errors import WorkloadError
from kvgym.workloads.gsp import GSP


def prefix_nodes(workload) -> np.ndarray:
    """Node of each request's group prefix (the question is one node below it)."""
    return workload.forest.nodes["parent"][workload.requests["prompt_node"]]


def share_above_half(workload) -> float:
    matched = workload.forest.nodes["chars_end"][prefix_nodes(workload)]
    return float(np.mean(matched / workload.requests["prompt_chars"] > 0.5))


def test_generate__default_numbers_of_the_readme():
    workload = GSP().generate(1)
    requests = workload.requests
    assert len(requests) == 4096
    assert requests["prompt_tokens"].mean() == 3128
    assert requests["prompt_chars"].mean() == pytest.approx(17_400, rel=0.005)
    assert requests["arrival_s"][-1] == pytest.approx(341, rel=0.1)
    prefixes = np.unique(prefix_nodes(workload))
    assert len(prefixes) == 128
    assert workload.forest.nodes["end"][prefixes].sum() == 200_192
    assert np.all(np.bincount(prefix_nodes(workload))[prefixes] == 32)


def test_generate__58_percent_pass_a_strict_half():
    shares = [share_above_half(GSP().generate(seed)) for seed in range(12)]
    assert np.all(np.abs(np.array(shares) - 0.58) <= 0.02), shares
    assert share_above_half(GSP(prefix_ratio=0.4).generate(1)) == 0
    assert share_above_half(GSP(prefix_ratio=0.6).generate(1)) == 1


def test_generate__shared_literal_is_two_tokens_of_17_characters():
    forest = GSP(groups=3).generate(0).forest
    assert tuple(forest.nodes[1]) == (0, 1, 0, 2, 17, 17)
    assert np.sum(forest.nodes["parent"] == 0) == 1
    without = GSP(groups=3, shared_literal=False).generate(0).forest
    assert np.sum(without.nodes["parent"] == 0) == 3


@pytest.mark.parametrize("literal", [True, False])
def test_generate__lengths_do_not_depend_on_the_literal(literal):
    workload = GSP(groups=5, lens=(10, 21), prefix_ratio=0.5, shared_literal=literal).generate(0)
    assert set(workload.forest.nodes["end"][prefix_nodes(workload)]) == {5, 10}
    assert set(workload.requests["prompt_tokens"]) == {10, 21}


def test_generate__orders():
    def groups(**kwargs):
        workload = GSP(groups=3, prompts_per_group=4, shared_literal=False, **kwargs).generate(5)
        return np.unique(prefix_nodes(workload), return_inverse=True)[1].tolist()

    assert groups(order="worst") == [0, 1, 2] * 4
    assert groups(order="grouped") == [0] * 4 + [1] * 4 + [2] * 4
    assert groups(order="random") not in (groups(order="worst"), groups(order="grouped"))


def test_generate__same_seed_same_workload_and_arrivals_apart():
    first, second = GSP(groups=4).generate(3), GSP(groups=4).generate(3)
    assert np.array_equal(first.requests, second.requests)
    assert np.array_equal(first.forest.nodes, second.forest.nodes)
    slow = GSP(groups=4, rate_rps=6.0).generate(3)
    assert np.allclose(slow.requests["arrival_s"], 2 * first.requests["arrival_s"])
    assert np.array_equal(slow.forest.nodes, first.forest.nodes)


def test_generate__page_floors_what_is_shared():
    workload = GSP(groups=4, lens=(1000,), prefix_ratio=0.5).generate(0, page_size=16)
    requests, nodes = workload.requests, workload.forest.nodes
    assert np.all(nodes["end"][requests["prompt_node"]] == 992)
    assert np.all(nodes["end"][prefix_nodes(workload)] == 496)
    assert np.all(requests["output_node"] == requests["prompt_node"])  # 1,004 tokens end on the same page
    assert np.all(requests["prompt_tokens"] == 1000)


@pytest.mark.parametrize(("ratio", "depth"), [(0.0, 2), (1.0, 100)])
def test_generate__all_or_nothing_shared(ratio, depth):
    workload = GSP(groups=3, prompts_per_group=2, lens=(100,), prefix_ratio=ratio).generate(0)
    requests = workload.requests
    assert np.all(workload.forest.nodes["end"][requests["prompt_node"]] == 100)
    a, b = (set(workload.forest.path(int(n))) for n in requests["prompt_node"][np.argsort(requests["prompt_node"])[:2]])
    assert max(workload.forest.nodes["end"][n] for n in a & b) == depth


def test_generate__zipf_makes_one_group_popular():
    counts = np.bincount(prefix_nodes(GSP(zipf=1.2).generate(1)))
    assert counts.sum() == 4096
    assert counts.max() > 10 * 32


def test_generate__closed_loop_is_released_by_completion():
    workload = GSP(groups=2, clients=3).generate(0)
    assert workload.clients == 3
    assert not workload.requests["arrival_s"].any()
    assert workload.heads.tolist() == list(range(64))


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"groups": 0}, "groups must be a whole number >= 1"),
        ({"prefix_ratio": 1.5}, "prefix_ratio must be a number >= 0 and <= 1"),
        ({"lens": (2,)}, "lengths from 3 on"),
        ({"lens": ()}, "lengths from 3 on"),
    ],
)
def test_gsp__wrong_options(wrong, message):
    with pytest.raises(WorkloadError, match=message):
        GSP(**wrong)


def test_classes__change_nothing_else():
    """Tenants and priorities come from a stream of their own: prompts and arrivals stay as they are."""
    plain = GSP(groups=12, prompts_per_group=5).generate(3)
    classed = GSP(groups=12, prompts_per_group=5, tenants=4, tenant_skew=1.0, priorities=(3.0, 1.0)).generate(3)
    assert classed.forest.nodes.tobytes() == plain.forest.nodes.tobytes()
    changed = [name for name in plain.requests.dtype.names if (plain.requests[name] != classed.requests[name]).any()]
    assert changed == ["priority", "tenant"]
    assert not plain.requests["tenant"].any() and not plain.requests["priority"].any()


def test_tenants__own_groups_in_proportion_to_their_share():
    workload = GSP(groups=60, prompts_per_group=2, tenants=3, tenant_skew=1.0).generate(0)
    tenant, prefix = workload.requests["tenant"], prefix_nodes(workload)
    # shares 1 : 1/2 : 1/3 of 60 groups are 32.7 : 16.4 : 10.9
    assert np.bincount(tenant).tolist() == [66, 32, 22]
    assert all(len(set(tenant[prefix == node])) == 1 for node in set(prefix))
    assert np.bincount(GSP(groups=6, prompts_per_group=1, tenants=6).generate(0).requests["tenant"]).tolist() == [1] * 6
    other = GSP(groups=60, prompts_per_group=2, tenants=3, tenant_skew=1.0).generate(1)
    assert (other.requests["tenant"] != tenant).any()


def test_priorities__are_drawn_with_their_shares():
    drawn = GSP(groups=100, prompts_per_group=40, priorities=(6.0, 3.0, 0.0, 1.0)).generate(0).requests["priority"]
    counts = np.bincount(drawn, minlength=4)
    assert counts[2] == 0
    assert counts[[0, 1, 3]] / 4000 == pytest.approx([0.6, 0.3, 0.1], abs=0.02)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"tenants": 0}, r"tenants must be a whole number >= 1"),
        ({"tenants": 129}, r"tenants must be in 1\.\.groups \(128\), got 129"),
        ({"tenant_skew": -1.0}, "tenant_skew must be a number >= 0, got -1"),
        ({"tenant_skew": float("nan")}, "tenant_skew must be a number >= 0, got nan"),
        ({"priorities": ()}, "priorities must be shares with a sum above 0"),
        ({"priorities": (0.0, 0.0)}, "priorities must be shares"),
        ({"priorities": (1.0, float("nan"))}, "priorities must be a number >= 0"),
        ({"priorities": (1.0, -0.5)}, r"priorities must be a number >= 0, got -0\.5"),
    ],
)
def test_classes__without_sense_are_an_error(options, message):
    with pytest.raises(WorkloadError, match=message):
        GSP(**options)


def test_shift__ranks_are_dealt_out_anew() -> None:
    """Within a stretch the most popular group has its Zipf share; from one stretch to the next it changes."""
    load = GSP(groups=16, prompts_per_group=100, zipf=1.0, shift_every=400).generate(1)
    parents = load.forest.nodes["parent"][load.requests["prompt_node"]]
    _, group = np.unique(parents, return_inverse=True)
    first = [np.bincount(part, minlength=16) for part in np.split(group, 4)]
    share = 1 / (1 / np.arange(1, 17)).sum()
    assert all(counts.max() / 400 == pytest.approx(share, abs=0.1) for counts in first)
    assert len({int(counts.argmax()) for counts in first}) > 1
    with pytest.raises(WorkloadError, match="needs zipf > 0"):
        GSP(shift_every=10)
