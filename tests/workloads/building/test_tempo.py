from __future__ import annotations

import numpy as np
import pytest

from kvgym.errors import ConfigError
from kvgym.workloads.building.tempo import Tempo, request_rate
from kvgym.workloads.fixed import Fixed
from kvgym.workloads.gsp import GSP

CHAT = Fixed(
    tuple(
        {"path": [["a", 10]], "session": c, "arrival_s": 100.0 + 4.0 * c, "think_s": 2.0}
        for c in range(3)
        for turn in range(2)
    )
)


def test_tempo__arrivals_come_closer_and_thinking_stays():
    base, fast = CHAT.generate(0), Tempo(CHAT, 4.0).generate(0)
    assert fast.requests["arrival_s"][fast.heads].tolist() == [100.0, 101.0, 102.0]
    same = [name for name in base.requests.dtype.names if name != "arrival_s"]
    assert all((base.requests[name] == fast.requests[name]).all() for name in same)
    assert base.requests["arrival_s"][base.heads].tolist() == [100.0, 104.0, 108.0]  # the source's own stay as they are
    assert (request_rate(base), request_rate(fast)) == (6 / 8, 3.0)


def test_tempo__poisson_at_another_rate_is_the_same_draws():
    slow = GSP(groups=4, prompts_per_group=4, rate_rps=1.0).generate(3)
    fast = Tempo(GSP(groups=4, prompts_per_group=4, rate_rps=1.0), 8.0).generate(3)
    gaps = [np.diff(np.sort(each.requests["arrival_s"])) for each in (slow, fast)]
    assert gaps[1] == pytest.approx(gaps[0] / 8)


def test_tempo__a_closed_loop_has_none():
    closed = GSP(groups=4, prompts_per_group=4, rate_rps=None, clients=2)
    with pytest.raises(ConfigError, match="closed loop of 2 clients has no rate"):
        Tempo(closed, 2.0).generate(0)
    assert request_rate(closed.generate(0)) is None
