"""Whole episodes on random small workloads: invariants after every event, and roads that must end in the same place."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from controllers.eviction import EVICTION
from kvgym.engine.engine import Engine
from kvgym.engine.state import DECIDE, EVICT, FINISHED
from kvgym.types import DONE, FAILED, REJECTED

POLICIES = tuple(EVICTION)
PAGE_SIZES = (1, 16)


def drained(engine: Engine) -> None:
    """Everything has ended: nothing is held, nobody is anywhere, and all requests are accounted for."""
    workers, clock = engine.cache.workers, engine.cache.clock[0]
    for name in ("private", "protected", "inflight", "inflight_tokens", "queued", "running", "batch", "context"):
        assert not workers[name].any(), name
    assert (workers["free"] + workers["evictable"] == workers["capacity"]).all()
    assert (workers["chunked"] == -1).all() and np.isinf(workers["due_s"]).all()
    assert clock["in_system"] == clock["no_first"] == 0
    records = engine.records()
    assert sorted(records["request"]) == list(range(len(engine.workload.requests)))


def plausible(engine: Engine, records: np.ndarray) -> None:
    """Each record fits its request, times are in order, and the integrals are the sums that they stand for."""
    requests = engine.workload.requests[records["request"]]
    page = engine.workload.page_size
    served = records[records["status"] == DONE]
    assert np.isin(records["status"], (DONE, REJECTED, FAILED)).all()
    assert (np.diff(records["finish_s"]) >= 0).all()
    assert (records["hit_tokens"] % page == 0).all() and (records["hit_tokens"] < requests["prompt_tokens"]).all()
    for early, late in (("arrival_s", "admitted_s"), ("admitted_s", "first_token_s"), ("first_token_s", "finish_s")):
        assert (served[early] <= served[late]).all()
    assert (served["output_tokens"] >= 1).all()
    assert (records["output_tokens"] <= np.minimum(requests["output_tokens"], requests["max_new_tokens"])).all()
    clock = engine.cache.clock[0]
    first = np.where(records["first_token_s"] >= 0, records["first_token_s"], records["finish_s"])
    assert clock["area_s"] == pytest.approx((records["finish_s"] - records["arrival_s"]).sum())
    assert clock["ttft_area_s"] == pytest.approx((first - records["arrival_s"]).sum())
    workers = engine.cache.workers
    assert workers["hit"].sum() == records["hit_tokens"].sum()
    assert workers["retractions"].sum() == records["retractions"].sum()


@pytest.mark.parametrize("page", PAGE_SIZES)
@pytest.mark.parametrize("policy", POLICIES)
def test_engine__keeps_its_invariants(drain: Any, episodes: Any, policy: str, page: int) -> None:
    seen = np.zeros(3, np.int64)

    @episodes.examples(40)
    @given(episodes.any(page))
    def check(case: Any) -> None:
        engine = case.engine(policy)
        records = drain(engine, case.worker)
        drained(engine)
        plausible(engine, records)
        seen[:] += [engine.cache.workers[name].sum() for name in ("hit", "evicted", "retractions")]

    check()
    assert (seen > 0).all()  # the episodes were worth running


def serve_paused(engine: Engine, case: Any) -> np.ndarray:
    """Run with a pause at every eviction."""
    while (code := engine.run()) != FINISHED:
        if code == EVICT:
            engine.serve_eviction()
        else:
            engine.route(case.worker(engine.pending))
    return engine.records()


@pytest.mark.parametrize("page", PAGE_SIZES)
@pytest.mark.parametrize("policy", POLICIES)
def test_engine__pause_fork_and_pickle_change_nothing(drain: Any, episodes: Any, policy: str, page: int) -> None:
    @episodes.examples(12)
    @given(episodes.any(page), st.integers(0, 12))
    def check(case: Any, stop: int) -> None:
        whole = drain(case.engine(policy), case.worker).tobytes()
        assert drain(case.engine(policy), case.worker).tobytes() == whole  # same seed, same episode
        assert serve_paused(case.engine(policy, pause_evict=1), case).tobytes() == whole
        engine = case.engine(policy)
        for _ in range(stop):
            if engine.run() != DECIDE:
                break
            engine.route(case.worker(engine.pending))
        twin, thawed = engine.fork(), pickle.loads(pickle.dumps(engine))
        assert drain(twin, case.worker).tobytes() == whole
        assert drain(engine, case.worker).tobytes() == whole
        assert drain(thawed, case.worker).tobytes() == whole

    check()


def test_engine__replayed_decisions_give_the_same_records(drain: Any, episodes: Any) -> None:
    """Route by what the engine looks like, export the choices, replay them blindly."""

    @episodes.examples(20)
    @given(episodes.any(1))
    def check(case: Any) -> None:
        engine = case.engine("rlt")
        taken: dict[int, int] = {}

        def emptiest(request: int) -> int:
            taken[request] = int(np.argmin(engine.cache.workers["inflight"]))
            return taken[request]

        whole = drain(engine, emptiest)
        replayed = drain(case.engine("rlt"), taken.__getitem__)
        assert replayed.tobytes() == whole.tobytes()

    check()
