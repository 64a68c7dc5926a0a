from __future__ import annotations

import numpy as np
import pytest

from kvgym.backends.evicting import EvictingBackend, Offer, last_turns
from kvgym.cluster import resolve_cluster
from kvgym.config import resolve_workload
from kvgym.errors import SimulationError
from kvgym.types import Decision, EvictionDecision

WORKLOAD = {"source": "gsp", "groups": 6, "prompts_per_group": 8, "lens": [64, 128], "rate_rps": 30.0}
CLUSTER = {"workers": 2, "capacity_tokens": 500}


@pytest.fixture
def backend():
    load = resolve_workload(WORKLOAD).generate(0, 1)
    return EvictingBackend(load, resolve_cluster(CLUSTER), Offer(2, 2), 0, 0)


def to_eviction(backend: EvictingBackend) -> EvictionDecision:
    while isinstance(choice := backend.run_to_choice(), Decision):
        backend.apply(choice.request % 2)
    assert choice is not None
    return choice


def test_evict__frees_what_was_offered_and_the_need_shrinks(backend):
    choice = to_eviction(backend)
    freed = backend.evict(1)
    assert freed == choice.candidates["tokens"][1]
    following = backend.run_to_choice()
    if isinstance(following, EvictionDecision) and following.worker == choice.worker:
        assert following.need_tokens == choice.need_tokens - freed
        assert following.free_tokens == choice.free_tokens + freed


def test_evict__refuses_what_is_not_on_offer(backend):
    choice = to_eviction(backend)
    for index in (-1, len(choice.candidates)):
        with pytest.raises(SimulationError, match="must be one of the"):
            backend.evict(index)
    backend.evict(0)
    with pytest.raises(SimulationError, match="one of the 0 that were offered"):
        backend.evict(0)  # that decision is over


def test_run_to_choice__asks_again_until_it_is_answered(backend):
    choice = to_eviction(backend)
    again = backend.run_to_choice()
    assert (again.time_s, again.worker, again.need_tokens) == (choice.time_s, choice.worker, choice.need_tokens)


def test_run_to_decision__evicts_the_first_offer_by_itself(backend):
    decisions = 0
    while (decision := backend.run_to_decision()) is not None:
        backend.apply(decision.request % 2)
        decisions += 1
    assert decisions == 48 == len(backend.records()) and backend.engine.cache.workers["evicted"].min() > 0


def test_last_turns__follow_the_first_user_of_a_node():
    rows = [
        {"path": [["sys", 20], ["a", 5]], "session": 1, "output_tokens": 2, "answer": "x"},
        {"path": [["sys", 20], ["b", 5]], "session": 2, "arrival_s": 1.0},
        {"path": [["sys", 20], ["a", 5], ["x", 2], ["on", 4]], "session": 1, "think_s": 1.0},
        {"path": [["sys", 20], ["b", 5], ["own", 3]], "session": 3, "arrival_s": 2.0},
    ]
    load = resolve_workload({"source": "fixed", "rows": rows}).generate(0, 1)
    last, nodes = last_turns(load), load.requests["prompt_node"]
    owner = {int(load.requests["session"][r]): r for r in range(4)}  # the last request of each session
    first = {name: int(load.requests["session"][np.flatnonzero(nodes == nodes[i])[0]]) for i, name in enumerate("abco")}
    assert last[nodes].tolist() == [owner[first[name]] for name in "abco"]
    assert last[load.forest.nodes["parent"][nodes[0]]] == owner[int(load.requests["session"][0])]
