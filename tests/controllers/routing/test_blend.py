from __future__ import annotations

import numpy as np
import pytest

from controllers.routing.blend import Blend
from kvgym.backends.simulated import SimulatedBackend
from kvgym.config.cluster import ClusterConfig
from kvgym.errors import ConfigError
from kvgym.workloads.gsp import GSP


@pytest.fixture
def blend(start):
    return start(Blend(), 2)


def test_score__a_miss_outweighs_eight_times_its_seconds_of_work(blend, ask):
    first = blend.act(ask(2, [0, 0], 0.0, request=0))
    # node 2 again: 0.199 of 0.2 thousand tokens are cached at `first`, which has 0.056 s of work left
    assert blend.act(ask(2, [0, 0], 0.0, request=1)) == first
    blend.model.load.work_s[first] = 8 * 0.199 * 0.13 + 0.02
    assert blend.act(ask(2, [0, 0], 0.0, request=2)) != first


def test_keep__counts_unanswered_work_after_it_has_drained(start, ask):
    choices = {}
    for keep in (0.0, 0.25):
        router = start(Blend(keep=keep), 2)
        first = router.act(ask(4, [0, 0], 0.0, request=0))
        router.model.load.held_s[first] = 4 * 8 * 0.2 * 0.13 + 0.1
        # "A" is known at `first`; by the time it is asked for, all its work has drained but none is answered
        router.model.load.cache.remember(first, 2, 0.0)
        choices[keep] = router.act(ask(2, [1, 0], 50.0, request=1)) == first
    assert choices == {0.0: True, 0.25: False}


@pytest.mark.parametrize("options", [{"keep": -1.0}, {"miss_price": -0.5}, {"keep": float("nan")}])
def test_weights__must_be_finite_and_not_negative(options):
    with pytest.raises(ConfigError, match="must be a number >= 0"):
        Blend(**options)


def test_unequal_workers__get_work_by_their_measured_speed():
    workload = GSP(groups=24, prompts_per_group=20, lens=(1024, 2048), rate_rps=16.0).generate(0)
    cluster = ClusterConfig(workers=2, capacity_tokens=60_000, speed=(0.5, 2.0))
    backend, router = SimulatedBackend(workload, cluster, "lru", 0), Blend()
    router.reset(backend.spec, 0)
    while (decision := backend.run_to_decision()) is not None:
        router.observe(backend.completions())
        backend.apply(router.act(decision))
    share = np.bincount(backend.records()["worker"], minlength=2) / len(workload.requests)
    assert share[1] > 0.6
    assert router.model.load.rate.seconds[0, 2] > 2 * router.model.load.rate.seconds[1, 2]
