from collections import OrderedDict

import numpy as np
import pytest

from kvgym.forest.forest import Forest
from kvgym.harness.measure.reuse import measure_reuse
from kvgym.types import REQUEST
from kvgym.workloads.building.sessions import make_workload
from kvgym.workloads.gsp import GSP


def workload(seed, requests=60):
    rng = np.random.default_rng(seed)
    forest, rows, prompts = Forest(), np.zeros(requests, REQUEST), []
    for r in range(requests):
        base = prompts[rng.integers(len(prompts))][: rng.integers(1, 40)] if prompts and rng.random() < 0.7 else []
        ids = [*base, *rng.integers(0, 5, rng.integers(1, 20)).tolist()]
        prompts.append(ids)
        rows["prompt_node"][r], rows["output_node"][r] = forest.insert(ids), forest.insert([*ids, 7, 8])
        rows["prompt_tokens"][r], rows["output_tokens"][r] = len(ids), 2
    rows["arrival_s"], rows["session"] = np.arange(requests), np.arange(requests)
    return make_workload("random", forest, rows, notes={}), prompts


def lru_hits(prompts, capacity):
    """Hits of a cache of single tokens, each known by all that is before it; the shallowest used last."""
    cache, hits = OrderedDict(), 0
    for ids in prompts:
        path = [tuple(ids[: i + 1]) for i in range(len(ids))]
        matched = 0
        while matched < len(ids) - 1 and path[matched] in cache:
            matched += 1
        hits += matched
        whole = [*ids, 7, 8]
        for i in range(len(whole), 0, -1):
            cache[tuple(whole[:i])] = True
            cache.move_to_end(tuple(whole[:i]))
        while len(cache) > capacity:
            cache.popitem(last=False)
    return hits


@pytest.mark.parametrize("seed", range(8))
def test_hit_rates__are_those_of_a_token_by_token_lru(seed, monkeypatch):
    sizes = np.array([30, 60, 100, 200, 400], np.int64)
    monkeypatch.setattr("kvgym.harness.measure.reuse._CAPACITIES", sizes)
    load, prompts = workload(seed)
    found = measure_reuse(load)
    total = sum(map(len, prompts))
    assert found.prompt_tokens == total
    expected = [lru_hits(prompts, size) for size in sizes.tolist()]
    assert (found.hit_rates * total).round().astype(int).tolist() == expected[: len(found.hit_rates)]
    assert round(found.ceiling * total) == lru_hits(prompts, 10**9)


def test_gsp__its_groups_are_the_busiest_prefixes():
    found = measure_reuse(GSP(groups=8, prompts_per_group=20, lens=(1000,), prefix_ratio=0.5).generate(0))
    assert found.busiest == [(500, 20)] * 5
    assert found.depths[16] > 0.94
    assert 512 not in found.depths
    assert found.ceiling == pytest.approx(0.5 * 19 / 20, abs=0.002)
