"""One worker or a few, served one request at a time, for figures that come from outside."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from controllers.eviction import EVICTION
from kvgym.config.engines import ENGINES
from kvgym.engine.engine import Engine, default_options
from kvgym.engine.state import FINISHED
from kvgym.workloads.base import Workload


def serve(
    load: Workload, policy: str, capacity: int, workers: int = 1, seed: int = 1, engine: str = "", **options: float
) -> tuple[np.ndarray, int]:
    """Route request r to worker r mod `workers`; return the records by request and the tokens evicted.

    Prompts are computed in one piece unless `options` say otherwise; `engine` is SGLang 0.5.23 unless it is named.
    """
    record = default_options()
    whole = {"page": load.page_size, "chunk": 1 << 20, "prefill": 1 << 20}
    for name, value in {"p0": 0.01, "d0": 0.01, **whole, **options}.items():
        record[name] = value
    rules = [ENGINES[engine]] * workers if engine else ()
    pools = np.full(workers, capacity)
    episode = Engine(load, record, pools, np.ones(workers), EVICTION.load(policy), seed, engines=rules)
    while episode.run() != FINISHED:
        episode.route(episode.pending % workers)
    return np.sort(episode.records(), order="request"), int(episode.cache.workers["evicted"].sum())


@pytest.fixture(scope="session")
def run() -> Callable[..., Any]:
    return serve
