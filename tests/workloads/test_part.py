import numpy as np
import pytest

from kvgym.errors import ConfigError, UnknownNameError, WorkloadError
from kvgym.workloads.multiturn import MultiTurn
from kvgym.workloads.part import Part

CHAT = {"source": "multiturn", "conversations": 50, "clients": 0, "rate_rps": 2.0}


def test_parts__are_the_whole_and_keep_sessions_together():
    whole = MultiTurn(conversations=50, clients=0, rate_rps=2.0).generate(3)
    parts = [Part(of=CHAT, parts=3, part=i, keep_rate=False).generate(3) for i in range(3)]
    assert sum(len(part.requests) for part in parts) == len(whole.requests)
    sessions = [set(part.requests["session"]) for part in parts]
    assert not sessions[0] & sessions[1] and min(map(len, sessions)) > 5
    for part in parts:
        rows = part.requests
        follows = rows["next"] >= 0
        assert (rows["session"][rows["next"][follows]] == rows["session"][follows]).all()
        assert (rows["turn"][part.heads] == 0).all()
        assert len(part.heads) == len(set(rows["session"]))
        np.testing.assert_array_equal(part.forest.nodes, whole.forest.nodes)


def test_keep_rate__half_the_sessions_come_in_half_the_time():
    half, slow = (Part(of=CHAT, part=1, keep_rate=keep).generate(0) for keep in (True, False))
    np.testing.assert_allclose(half.requests["arrival_s"] * 2, slow.requests["arrival_s"])


@pytest.mark.parametrize(
    ("fields", "error", "message"),
    [
        ({"part": 2}, WorkloadError, "part must be below parts"),
        ({"of": "gsp_defualt"}, UnknownNameError, "gsp_default"),
        ({"of": 3}, ConfigError, "of must be a preset's name"),
        ({"of": {"source": "multiturn", "turn": 1}}, ConfigError, "turn"),
    ],
)
def test_mistakes__are_named(fields, error, message):
    with pytest.raises(error, match=message):
        Part(**{"of": CHAT, **fields})


def test_an_empty_part__is_named():
    with pytest.raises(WorkloadError, match="none of the workload's sessions"):
        Part(of={**CHAT, "conversations": 1}, parts=100, part=7).generate(0)
