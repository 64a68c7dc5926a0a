from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from controllers.routing.linear import Linear, dynamo, llmd
from kvgym.backends.simulated import SimulatedBackend
from kvgym.config.cluster import ClusterConfig
from kvgym.config.signals import SignalsConfig
from kvgym.errors import ConfigError
from kvgym.types import DONE
from kvgym.workloads.fixed import Fixed


@pytest.fixture
def make(start):
    """Return a function that makes a router of a preset, reset for a fleet."""

    def build(preset, workers, **options):
        return start(preset(**options), workers)

    return build


def test_presets__have_the_sources_constants():
    assert (dynamo().weights, dynamo().temperature, dynamo().block_tokens) == ((1, 1, 0, 0, 0), 0, 16)
    assert (llmd().weights, llmd().temperature, llmd().block_tokens) == ((0, 0, 3, 2, 0), 0, 16)


def test_dynamo__prefill_blocks_left_plus_decode_blocks(make, ask):
    router = make(dynamo, 2)
    decision = ask(2, [0, 0])  # 200 tokens
    for inflight_tokens, expected in ((320, 1), (80, 0)):
        # worker 0 holds 100 tokens, 6 whole blocks: it saves 6 blocks of prefill
        seen = dataclasses.replace(
            decision, hit_tokens=np.array([100, 0]), inflight_tokens=np.array([inflight_tokens, 0])
        )
        costs = router._costs(seen, np.arange(2), 200 - np.array([96, 0]))
        assert costs == pytest.approx([104 / 16 + (inflight_tokens + 200) / 16, 200 / 16 + 200 / 16])
        assert router.act(seen) == expected
        router.reset(router.spec, 0)


def test_prefill__counts_until_the_answer(make, ask, finished):
    router = make(dynamo, 2)
    first = router.act(ask(2, [0, 0], request=0))
    assert router.prefill_tokens[first] == 200
    assert router.act(ask(2, [0, 0], request=1)) == 1 - first
    router.observe(finished((0, DONE, 1.0), (77, DONE, 1.0)))
    assert router.prefill_tokens.tolist() == ([0, 200] if first == 0 else [200, 0])
    assert router.act(ask(2, [0, 0], request=2)) == first


def test_retry__moves_the_prefill(make, ask):
    router = make(dynamo, 2)
    router.act(ask(2, [0, 0], request=0, mask=[True, False]))
    router.act(ask(2, [0, 0], request=0, mask=[False, True]))
    assert router.prefill_tokens.tolist() == [0, 200]


def test_llmd__prefix_three_queue_two(make, ask):
    router = make(llmd, 3)
    seen = dataclasses.replace(ask(2, [0] * 3), hit_tokens=np.array([100, 0, 0]), queued=np.array([10, 5, 0]))
    # 3 * (1 - 96/200) + 2 = 3.56; 3 + 1 = 4; 3 + 0 = 3
    assert router._costs(seen, np.arange(3), np.array([104, 200, 200])) == pytest.approx([3.56, 4.0, 3.0])
    assert router.act(seen) == 2
    assert router.act(dataclasses.replace(seen, queued=np.array([4, 5, 0]))) == 2
    assert router.act(dataclasses.replace(seen, queued=np.array([2, 5, 0]))) == 0


def test_kv_use__is_the_used_part_of_the_pool(make, ask):
    router = make(Linear, 2, kv_use=2.0)
    seen = dataclasses.replace(ask(2, [0, 0]), kv_used_tokens=np.array([500, 100]))
    assert router._costs(seen, np.arange(2), np.array([200, 200])) == pytest.approx([1.0, 0.2])


def test_simultaneous_requests__with_a_temperature_do_not_all_pick_the_best_worker(make, ask):
    seen = dataclasses.replace(ask(2, [0] * 4), queued=np.array([9, 0, 9, 9]))
    frozen = [make(llmd, 4).act(seen) for _ in range(16)]
    assert set(frozen) == {1}
    router = make(llmd, 4, temperature=1.0)
    assert len({router.act(dataclasses.replace(seen, request=i)) for i in range(16)}) > 1


def test_temperature__gives_softmax_over_the_scaled_costs(make):
    router = make(llmd, 3, temperature=0.5)
    draws = np.bincount([router._draw(np.array([10.0, 30.0, 50.0])) for _ in range(20_000)], minlength=3)
    chances = np.exp(-np.array([0.0, 0.5, 1.0]) / 0.5)
    assert draws / 20_000 == pytest.approx(chances / chances.sum(), abs=0.015)


def test_equal_costs__are_drawn_uniformly_at_any_temperature(make):
    for temperature in (0.0, 0.7):
        router = make(llmd, 3, temperature=temperature)
        draws = np.bincount([router._draw(np.ones(3)) for _ in range(3000)], minlength=3)
        assert draws.min() > 850


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "one of the weights .* must be above 0"),
        ({"queue": -1.0, "prefix": 1.0}, "queue must be a number >= 0, got -1.0"),
        ({"queue": 1.0, "temperature": -0.1}, "temperature must be a number >= 0"),
        ({"queue": 1.0, "block_tokens": 0}, "block_tokens must be a whole number >= 1"),
    ],
)
def test_options__that_make_no_sense_are_errors(options, message):
    with pytest.raises(ConfigError, match=message):
        Linear(**options)


@pytest.mark.parametrize(("temperature", "most", "used"), [(0.0, 16, 1), (0.5, 10, 3)])
def test_stale_metrics__a_temperature_spreads_requests_of_one_moment(temperature, most, used):
    """Worker 2 holds the prefix; 16 requests for it arrive at once and nobody hears of the queue that they make."""
    rows = [{"path": [["shared", 400], ["first", 10]]}]
    rows += [{"path": [["shared", 400], [f"q{i}", 10]], "session": i + 1, "arrival_s": 60.0} for i in range(16)]
    workload = Fixed(tuple(rows)).generate(0)
    backend = SimulatedBackend(workload, ClusterConfig(), "lru", 0, SignalsConfig(scrape_s=5.0))
    router = llmd(temperature=temperature)
    router.reset(backend.spec, 0)
    choices = []
    while (decision := backend.run_to_decision()) is not None:
        worker = router.act(decision) if choices or decision.request else 2
        backend.apply(worker)
        choices += [worker] if decision.request else []
    counts = np.bincount(choices, minlength=4)
    assert len(choices) == 16 and np.argmax(counts) == 2
    assert counts[2] <= most and np.count_nonzero(counts) == used


def test_metrics__absent_are_replaced_by_own_counts(make, ask):
    """Queue and KV use of workers that report nothing: requests and prompt tokens in flight."""
    blind = {"queued": None, "kv_used_tokens": None, "running": None, "inflight_tokens": np.array([500, 100, 300])}
    decision = dataclasses.replace(ask(2, [5, 1, 3]), **blind)
    new = np.full(3, 200)
    assert make(Linear, 3, queue=2.0)._costs(decision, np.arange(3), new).tolist() == [2.0, 0.0, 1.0]
    assert make(Linear, 3, kv_use=1.0)._costs(decision, np.arange(3), new).tolist() == [0.5, 0.1, 0.3]
