from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from controllers.routing.lbgr import LBGR
from controllers.routing.lbgr_release import LBGRRelease
from kvgym.backends.simulated import SimulatedBackend
from kvgym.config.cluster import ClusterConfig
from kvgym.types import DONE, FAILED, REJECTED
from kvgym.workloads.gsp import GSP


@pytest.fixture
def router(start):
    return start(LBGR(), 3)


def play(router, backend, seed=0):
    """Run an episode and return the chosen workers and the records."""
    router.reset(backend.spec, seed)
    choices, predicted_s = [], np.zeros(len(backend.workload.requests))
    while (decision := backend.run_to_decision()) is not None:
        finished = backend.completions()
        if len(finished):
            router.observe(finished)
        choices.append(router.act(decision))
        predicted_s[decision.request] = router.predicted_s
        backend.apply(choices[-1])
    records = backend.records()
    records["predicted_s"] = predicted_s[records["request"]]
    return choices, records


def test_cost__starting_seconds_per_request_and_per_token(router, ask):
    worker = router.act(ask(2, [0] * 3, request=0))
    cost_s = 0.03 + 0.2 * 0.13
    assert router.load.work_s[worker] == pytest.approx(cost_s)
    assert router.predicted_s == pytest.approx(cost_s)
    # a twin finds all but one token at the same worker: 199 cached ones cost nothing yet
    router.load.work_s[:], router.load.held_s[:] = 0.0, 0.0
    assert router.act(ask(2, [0] * 3, request=1)) == worker
    assert router.predicted_s == pytest.approx(0.03 + 0.001 * 0.13)


def test_simultaneous_requests__spread(router, ask):
    assert sorted(router.act(ask(node, [0] * 3, request=i)) for i, node in enumerate((2, 5, 6))) == [0, 1, 2]


@pytest.mark.parametrize("status", [DONE, REJECTED, FAILED])
def test_release__leaves_nothing_on_an_idle_worker(status, router, ask, finished):
    worker = router.act(ask(2, [0] * 3, 0.0, request=0))
    router.observe(finished((0, status, 0.001), (99, DONE, 0.001)))
    assert router.load.work_s[worker] == router.load.held_s[worker] == router.load.inflight[worker] == 0


def test_load__never_exceeds_what_is_in_flight(router, ask, finished):
    only = [True, False, False]
    router.act(ask(2, [0] * 3, 0.0, request=0, mask=only))
    router.act(ask(5, [0] * 3, 0.0, request=1, mask=only))
    router.observe(finished((0, DONE, 0.001)))
    assert router.load.work_s[0] == pytest.approx(0.03 + 0.2 * 0.13)


def test_retry__moves_the_reservation(router, ask):
    router.act(ask(2, [0] * 3, 0.0, request=0, mask=[True, False, False]))
    router.act(ask(2, [0] * 3, 0.001, request=0, mask=[False, True, False]))
    assert router.load.inflight.tolist() == [0, 1, 0]
    assert router.load.held_s.tolist() == pytest.approx([0.0, 0.056, 0.0])


def test_residual__is_learned_per_worker_from_latencies(router, ask, finished):
    predicted_s = []
    for i in range(2400):
        worker = router.act(ask(6, [0] * 3, 10.0 * i, request=i, mask=[w == i % 3 for w in range(3)]))
        predicted_s.append(router.predicted_s)
        router.observe(finished((i, DONE, 10.0 * i + (2.0 if worker == 0 else 0.5))))
    assert predicted_s[2397:] == pytest.approx([2.0, 0.5, 0.5], rel=0.05)


def test_trust__bounds_the_residual_in_the_choice(start, ask):
    for trust, expected in ((0.5, 0), (50.0, 1)):
        router = start(LBGR(trust=trust), 2)
        router.residual.theta[0, 0] = 5.0
        router.load.cache.remember(0, 2, 0.0)
        # worker 0 holds the prompt and costs .03 s against .056 s, even half again as much; believed fully it costs 5 s
        assert router.act(ask(2, [0, 0])) == expected


def test_miss_price__holds_a_prefix_together_where_many_wait(start, ask):
    for price, expected in ((0.0, 1), (5.0, 0)):
        router = start(LBGR(miss_price=price), 2)
        router.load.cache.remember(0, 2, 0.0)
        router.load.inflight[:] = 4
        router.load.work_s[:], router.load.held_s[:] = [0.05, 0.0], [0.05, 0.0]
        assert router.act(ask(2, [4, 4])) == expected


def test_engine_metrics_and_characters__are_not_looked_at():
    load, fleet = GSP(groups=8, prompts_per_group=8, rate_rps=20.0).generate(0), ClusterConfig(workers=3)

    class Blind(LBGR):
        def act(self, decision):
            nothing = np.full(3, -1)
            return super().act(
                dataclasses.replace(
                    decision, prompt_chars=1, inflight=nothing, inflight_tokens=nothing, running=nothing,
                    queued=nothing, kv_used_tokens=nothing, kv_capacity_tokens=nothing, hit_tokens=None,
                )
            )  # fmt: skip

    seeing, blind = (play(cls(), SimulatedBackend(load, fleet, "lru", 0))[0] for cls in (LBGR, Blind))
    assert seeing == blind


def test_slow_and_fast_workers__are_measured_and_get_what_they_can_do():
    load = GSP(groups=32, prompts_per_group=32, rate_rps=12.0).generate(0)
    router, fleet = LBGR(), ClusterConfig(workers=4, speed=(0.5, 1.0, 1.0, 2.0))
    choices, records = play(router, SimulatedBackend(load, fleet, "lru", 0))
    seconds = router.load.rate.seconds[:, 2]
    assert seconds[0] / seconds[1:3] == pytest.approx([2.0, 2.0], rel=0.3)
    assert seconds[3] / seconds[1:3] == pytest.approx([0.5, 0.5], rel=0.3)
    shares = np.bincount(choices, minlength=4) / len(choices)
    assert shares[0] < 0.22
    assert shares[3] > 0.26
    rest = records[len(records) // 4 :]
    latency_s = rest["finish_s"] - rest["arrival_s"]
    assert rest["predicted_s"].mean() == pytest.approx(latency_s.mean(), rel=0.2)


@pytest.mark.slow
@pytest.mark.parametrize("speed", [1.0, (0.5, 1.0, 1.0, 1.5)])
def test_default_gsp__beats_the_release(speed):
    ratios = []
    for seed in (0, 1):
        load, fleet = GSP().generate(seed), ClusterConfig(speed=speed, engine="sglang-0.4.6")
        medians = []
        for router in (LBGR(), LBGRRelease()):
            records = play(router, SimulatedBackend(load, fleet, "rlt_release", seed), seed)[1]
            medians.append(float(np.median(records["finish_s"] - records["arrival_s"])))
        ratios.append(medians[0] / medians[1])
    assert max(ratios) < 1.0
