import numpy as np
import pytest

from kvgym.errors import WorkloadError
from kvgym.workloads.multiturn import MultiTurn


def test_every_prompt_repeats_the_turns_before_it():
    load = MultiTurn(conversations=6, turns=(1, 3), system_tokens=5, message_tokens=10, output_tokens=2).generate(3)
    rows, nodes = load.requests, load.forest.nodes
    assert sorted(np.bincount(rows["session"])) == [1, 1, 1, 3, 3, 3]
    for row in rows:
        assert row["prompt_tokens"] == 5 + row["turn"] * 2 + (row["turn"] + 1) * 10
        assert nodes["end"][row["prompt_node"]] == row["prompt_tokens"]
        if row["next"] >= 0:
            follower = rows[row["next"]]
            assert nodes["parent"][follower["prompt_node"]] == row["output_node"]
            assert nodes["parent"][row["output_node"]] == row["prompt_node"]
    heads = rows[load.heads]
    assert len({int(nodes["parent"][node]) for node in heads["prompt_node"]}) == 1  # the system prompt


def test_order__depends_on_the_seed_alone():
    source = MultiTurn(conversations=40, clients=0, rate_rps=2.0)
    first, again, other = source.generate(1), source.generate(1), source.generate(2)
    assert np.array_equal(first.requests, again.requests)
    assert not np.array_equal(np.bincount(first.requests["session"]), np.bincount(other.requests["session"]))
    assert len(first.requests) == len(other.requests) == 200
    assert (np.diff(first.requests["arrival_s"][first.heads]) >= 0).all()


@pytest.mark.parametrize("page_size", [1, 16])
def test_paged__nodes_end_on_whole_pages(page_size):
    load = MultiTurn(conversations=4, message_tokens=30).generate(0, page_size)
    assert (load.forest.nodes["end"] % page_size == 0).all()


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"turns": ()}, "at least one number of turns"),
        ({"turns": (0,)}, "turns"),
        ({"conversations": 0}, "conversations must be"),
        ({"conversations": 100_000_000, "turns": (2,)}, "at most 100,000,000 requests"),
        ({"message_tokens": 2**30, "turns": (10_000,)}, "tokens"),
    ],
)
def test_mistakes__are_named(fields, message):
    with pytest.raises(WorkloadError, match=message):
        MultiTurn(**fields)
