"""KV events of real servers tell the router-side index what the caches hold."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from kvgym.config.loader import resolve_workload
from kvgym.config.signals import SignalsConfig

pytestmark = [pytest.mark.live, pytest.mark.slow, pytest.mark.timeout(600)]
EVENTS = SignalsConfig(observability="events")


def test_events__foretell_cached_tokens_after_evictions_and_across_runs(
    make_cluster: Any, open_backend: Any, tools: Any
) -> None:
    fields = {"groups": 12, "prompts_per_group": 6, "lens": [300, 500], "output_tokens": 4, "clients": 1}
    workload = resolve_workload({"source": "gsp", "rate_rps": None, **fields}).generate(3, 16)
    workload.requests["think_s"] = 0.1  # events come a little after the answer
    for seed in range(2):
        backend = open_backend(workload, make_cluster(page_size=16), "lru", seed, EVENTS)
        known: dict[int, int] = {}

        def choose(decision: Any, known: dict[int, int] = known) -> int:
            worker = decision.request % 3 % 2
            known[decision.request] = int(decision.hit_tokens[worker])
            return worker

        records = tools.play(backend, choose)
        evicted = backend.stats()["evicted_tokens"]
        backend.close()
        told = np.array([known[r] for r in range(len(records))])
        assert min(evicted) > 1000
        assert records["hit_tokens"].sum() > 0.1 * records["prompt_tokens"].sum()
        assert (told == records["hit_tokens"]).mean() > 0.9
