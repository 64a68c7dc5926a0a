from __future__ import annotations

import numpy as np
import pytest

from kvgym.errors import WorkloadError
from kvgym.forest.forest import Forest
from kvgym.types import REQUEST
from kvgym.workloads.building.sessions import link_turns, make_workload


def requests_of(sessions: list[int]) -> np.ndarray:
    requests = np.zeros(len(sessions), REQUEST)
    requests["session"] = sessions
    requests["prompt_tokens"] = requests["output_tokens"] = 1
    return requests


def test_link_turns__interleaved_sessions():
    requests = requests_of([5, 2, 5, 5, 2])
    requests["arrival_s"] = [3.0, 1.0, 9.0, 0, 0]
    assert link_turns(requests).tolist() == [1, 0]
    assert requests["turn"].tolist() == [0, 0, 1, 2, 1]
    assert requests["arrival_s"].tolist() == [3.0, 1.0, 0, 0, 0]
    assert requests["next"].tolist() == [2, 4, 3, -1, -1]


def test_make_workload__asks_for_what_will_be_generated():
    requests = requests_of([0, 1])
    requests["max_new_tokens"] = [0, 9]
    made = make_workload("w", Forest(), requests, notes={})
    assert made.requests["max_new_tokens"].tolist() == [1, 9]


@pytest.mark.parametrize("field", ["prompt_tokens", "output_tokens"])
def test_make_workload__empty_lengths(field):
    requests = requests_of([0, 1, 2])
    requests[field][1:] = 0
    with pytest.raises(WorkloadError, match=rf"{field} must be >= 1, got 0 \(request 1; 2 in all\)"):
        make_workload("w", Forest(), requests, notes={})


def test_make_workload__negative_clients():
    with pytest.raises(WorkloadError, match="clients must be 0"):
        make_workload("w", Forest(), requests_of([0]), clients=-1, notes={})
