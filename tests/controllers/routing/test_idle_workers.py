"""No allowed worker stays idle while others queue, on any hardware and fleet, for the routers that measure speeds."""

from __future__ import annotations

import numpy as np
import pytest

from controllers.routing import ROUTING
from kvgym.backends.simulated import SimulatedBackend, engine_options
from kvgym.config.cluster import resolve_cluster
from kvgym.config.loader import resolve_workload
from kvgym.costs import COSTS
from kvgym.engine.serving.alone import service_s

LENS, OUT = (512, 2048, 4096), 16
FLEETS = {
    "two": (1.0, 1.0),
    "four": (1.0,) * 4,
    "unequal": (0.5, 1.0, 1.0, 1.5),
    "far apart": (0.25, 0.25, 1.0, 1.0, 1.0, 1.0, 4.0, 4.0),
    "thirty-two": (1.0,) * 32,
}


def load(
    router: str, cost: str, speed: tuple[float, ...], share: float, seed: int = 0
) -> tuple[np.ndarray, np.ndarray]:
    """Route prompts that have nothing in common, so that no worker is better for what it holds.

    Args:
        router: its name.
        cost: preset of the workers' step costs.
        speed: of each worker.
        share: arrivals over what the fleet could serve one request at a time.
        seed: of requests and router.

    Returns:
        Requests per worker, and for each the longest run of decisions at which it was idle while requests waited in
        other workers' queues.
    """
    workers = len(speed)
    cluster = resolve_cluster({"workers": workers, "capacity_tokens": 100_000, "cost": cost, "speed": list(speed)})
    options = engine_options(cluster).view(np.recarray)[0]
    alone_s = float(np.mean([service_s(options, tokens, 0, OUT) for tokens in LENS]))
    gsp = {"source": "gsp", "groups": 60 * workers, "prompts_per_group": 1, "lens": LENS, "output_tokens": OUT}
    source = resolve_workload({**gsp, "rate_rps": share * sum(speed) / alone_s})
    backend = SimulatedBackend(source.generate(seed), cluster, "lru", seed)
    controller = ROUTING.load(router)()
    controller.reset(backend.spec, seed)
    run, longest = np.zeros(workers, int), np.zeros(workers, int)
    while (decision := backend.run_to_decision()) is not None:
        controller.observe(backend.completions())
        run = np.where((decision.inflight == 0) & (decision.queued.sum() > 0), run + 1, 0)
        longest = np.maximum(longest, run)
        backend.apply(controller.act(decision))
    return np.bincount(backend.records()["worker"], minlength=workers), longest


@pytest.mark.parametrize("share", [0.7, 1.3])
@pytest.mark.parametrize("fleet", FLEETS)
@pytest.mark.parametrize("cost", list(COSTS))
@pytest.mark.parametrize("router", ["blend", "lbgr"])
def test_no_worker__stays_idle_while_others_queue(router, cost, fleet, share):
    served, longest = load(router, cost, FLEETS[fleet], share)
    # `blend` prices a miss eight-fold, and with it what it knows of the workers' speeds: it leaves slow ones longest.
    assert longest.max() <= (16 if fleet == "far apart" else 6) * len(served), f"longest idle runs {longest.tolist()}"
    fair = np.array(FLEETS[fleet]) * served.sum() / sum(FLEETS[fleet])
    assert (served > (0.01 if fleet in ("unequal", "far apart") else 0.08) * fair).all(), f"served {served.tolist()}"
