"""The real sglang-router and kvgym's `cache_aware` on the same requests and servers: they agree in what they reuse."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from controllers.routing.cache_aware import CacheAware
from controllers.routing.round_robin import RoundRobin
from kvgym.backends.sglang import pool
from kvgym.backends.sglang.gateway import FrontRouter
from kvgym.backends.sglang.gateway_peer import RouterPeer
from kvgym.config.loader import resolve_workload
from kvgym.errors import ConfigError
from kvgym.types import DONE
from kvgym.workloads.base import Workload

pytestmark = [pytest.mark.live, pytest.mark.slow, pytest.mark.timeout(900)]
SEEDS, IN_FLIGHT = range(5), 16


def groups(seed: int) -> Workload:
    """14 groups of 250-token prefixes, about what one server holds, much less than both; 16 in flight."""
    fields = {"groups": 14, "prompts_per_group": 12, "prefix_ratio": 0.9, "lens": [280], "output_tokens": 4}
    return resolve_workload({"source": "gsp", "rate_rps": None, "clients": IN_FLIGHT, **fields}).generate(seed, 1)


def hit_rate(records: np.ndarray) -> float:
    assert (records["status"] == DONE).all()
    return float(records["hit_tokens"].sum() / records["prompt_tokens"].sum())


def routed(controller: Any, seed: int, cluster: Any, open_backend: Any, tools: Any, front: str = "") -> np.ndarray:
    """Return the records of one episode under `controller`."""
    backend = open_backend(groups(seed), cluster, "lru", seed, front=front)
    controller.reset(backend.spec, seed)
    records: np.ndarray = tools.play(backend, controller.act)
    backend.close()
    return records


def test_cache_aware__hit_rates_within_three_points_of_the_real_router(
    make_cluster: Any, open_backend: Any, tools: Any
) -> None:
    cluster = make_cluster()
    urls = [server.url for server in pool.acquire(cluster, "lru")]
    ours, theirs, blind = [], [], []
    for seed in SEEDS:
        ours.append(hit_rate(routed(CacheAware(), seed, cluster, open_backend, tools)))
        if seed < 2:
            blind.append(hit_rate(routed(RoundRobin(), seed, cluster, open_backend, tools)))
        with FrontRouter(cluster.live, urls, "cache_aware") as router:
            records = routed(RouterPeer(), seed, cluster, open_backend, tools, router.url)
        assert set(records["worker"]) == {0, 1}
        theirs.append(hit_rate(records))
    print(f"hit rates: ours {ours}, the router's {theirs}, round robin {blind}")
    assert np.mean(theirs) > np.mean(blind) + 0.05  # else agreement would be no news
    assert abs(np.mean(ours) - np.mean(theirs)) <= 0.03


def test_front__unknown_policy(make_cluster: Any) -> None:
    with pytest.raises(ConfigError, match=r"no policy 'cache_awar'.*cache_aware"):
        FrontRouter(make_cluster().live, ["http://127.0.0.1:9"], "cache_awar")
