from __future__ import annotations

import pytest

from kvgym.backends.evicting import EvictingBackend, Offer, last_turns
from kvgym.config.cluster import resolve_cluster
from kvgym.config.loader import resolve_workload
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
        backend.apply(choice.request % len(choice.mask))
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


def test_last_turns__are_those_of_each_requests_session():
    rows = [
        {"path": [["a", 5]], "session": 1, "output_tokens": 2},
        {"path": [["b", 5]], "session": 2, "arrival_s": 1.0},
        {"path": [["c", 5]], "session": 1, "think_s": 1.0},
        {"path": [["d", 5]], "session": 1, "think_s": 1.0},
    ]
    load = resolve_workload({"source": "fixed", "rows": rows}).generate(0, 1)
    sessions, turns = load.requests["session"], load.requests["turn"]
    for r, last in enumerate(last_turns(load)):
        assert sessions[last] == sessions[r] and turns[last] == turns[sessions == sessions[r]].max()


def opened(later: list, think_s: float) -> list[tuple[int, int]]:
    """Return (tokens, open) of what is offered when a third session needs room; session 1 goes on `later`."""
    rows = [
        {"path": [["x", 10]], "session": 1, "arrival_s": 0.0},
        {"path": later, "session": 1, "think_s": 30.0},
        {"path": [["shared", 20], ["a", 30]], "session": 2, "arrival_s": 1.0},
        {"path": [["shared", 20], ["a", 30], ["b", 1]], "session": 2, "think_s": think_s},
        {"path": [["c", 70]], "session": 3, "arrival_s": 5.0},
    ]
    cost = {"p0_ms": 1.0, "p_tok_ms": 0.01, "d0_ms": 1.0}
    load = resolve_workload({"source": "fixed", "rows": rows}).generate(0, 1)
    fleet = resolve_cluster({"workers": 1, "capacity_tokens": 110, "cost": cost})
    candidates = to_eviction(EvictingBackend(load, fleet, Offer(4, 0), 0, 0)).candidates
    return [(int(each["tokens"]), int(each["open"])) for each in candidates]


@pytest.mark.parametrize("later", [[["shared", 20], ["a", 30], ["q", 3]], [["zzz", 20], ["b", 30], ["q", 3]]])
def test_open__is_of_the_session_that_used_it_first_and_knows_nothing_of_what_others_will_ask(later):
    assert opened(later, think_s=60.0) == [(10, 1), (50, 1)]
    assert opened(later, think_s=0.1) == [(10, 1), (1, 0)]
