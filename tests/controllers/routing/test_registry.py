from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from controllers.routing import ROUTING
from kvgym.backends.simulated import SimulatedBackend
from kvgym.config.cluster import ClusterConfig
from kvgym.config.schedule import FleetEvent
from kvgym.errors import SimulationError, UnknownNameError
from kvgym.types import DONE
from kvgym.workloads.gsp import GSP

NAMES = [name for name in ROUTING if name != "learned"]  # that one needs a file


def test_registry__unknown_name_lists_known_ones_and_the_nearest():
    with pytest.raises(UnknownNameError, match="did you mean 'lbgr_release'") as error:
        ROUTING.load("lbgr_relase")
    assert all(name in str(error.value) for name in NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_reset__same_seed_gives_the_same_choices(name, fleet, ask, finished):
    def play(controller, seed):
        controller.reset(fleet(5), seed)
        rng, inflight, choices = np.random.default_rng(0), np.zeros(5, int), []
        for request in range(120):
            choice = controller.act(ask(int(rng.integers(1, 7)), inflight.tolist(), 0.05 * request, request))
            choices.append(choice)
            inflight[choice] += 1
            if request >= 12:
                controller.observe(finished((request - 12, 3, 0.05 * request + 0.01)))
                inflight[choices[request - 12]] -= 1
        return choices

    controller = ROUTING.load(name)()
    first = play(controller, 11)
    assert play(controller, 11) == first
    assert play(ROUTING.load(name)(), 11) == first
    assert len(set(first)) > 1


@pytest.mark.parametrize("name", NAMES)
def test_mask__is_obeyed_whatever_the_state(name, fleet, ask):
    controller, rng = ROUTING.load(name)(), np.random.default_rng(5)
    controller.reset(fleet(4), 0)
    for request in range(300):
        mask = rng.random(4) < 0.4
        mask[rng.integers(4)] = True
        node, inflight = int(rng.integers(1, 7)), rng.integers(0, 100, 4).tolist()
        assert mask[controller.act(ask(node, inflight, float(request), request, mask=mask.tolist()))]


@pytest.mark.parametrize("name", NAMES)
def test_mask__that_allows_nobody_is_an_error(name, start, ask):
    controller = start(ROUTING.load(name)(), 2)
    with pytest.raises(SimulationError, match="allows no worker"):
        controller.act(ask(1, [0, 0], mask=[False, False]))


@pytest.mark.parametrize(
    ("name", "rule", "tree_chars"),
    [("cache_aware", (0.3, 64, 1.5), 1 << 26), ("cache_aware_014", (0.5, 32, 1.0001), 1 << 24)],
)
def test_defaults__are_those_of_router_032_and_of_the_paper(name, rule, tree_chars):
    router = ROUTING.load(name)()
    assert (router.cache_threshold, router.balance_abs, router.balance_rel) == rule
    assert (router.max_tree_chars, router.evict_every_s) == (tree_chars, 60.0)


@pytest.mark.parametrize("name", ["cache_aware", "cache_aware_014", "cache_aware_tuned", "lbgr_release"])
def test_match__is_a_prefix_not_a_set_of_texts(name, start, ask):
    # "A" is cached on worker 0, "B" on worker 1: "B A" begins with B, so only worker 1 has anything of it.
    controller = start(ROUTING.load(name)(max_tree_chars=2**20), 2)
    controller.tree.insert(0, 1, 0.0)
    controller.tree.insert(1, 4, 0.0)
    assert controller.tree.match_chars(5).tolist() == [0, 400]
    assert controller.act(ask(5, [0, 0], 1.0, prompt_chars=780)) == 1


def test_miss__goes_to_the_idle_worker_by_the_new_rule_and_to_the_small_tree_by_the_old(start, ask):
    # Worker 0: small tree, long queue. Worker 1: large tree, idle.
    choices = {}
    for name in ("cache_aware", "cache_aware_014"):
        controller = start(ROUTING.load(name)(), 2)
        controller.tree.insert(0, 6, 0.0)
        controller.tree.insert(1, 2, 0.0)
        choices[name] = controller.act(ask(5, [30, 0], 1.0))
    assert choices == {"cache_aware": 1, "cache_aware_014": 0}


def index_of(controller):
    """Return what a router remembers of the caches."""
    if hasattr(controller, "tree"):
        return controller.tree
    return controller.load.cache if hasattr(controller, "load") else controller.cache


@pytest.mark.parametrize(
    "name", ["cache_aware", "cache_aware_014", "cache_aware_tuned", "lbgr_release", "lbgr", "session_affinity"]
)
def test_restart__makes_the_router_forget_what_the_worker_held(name, fleet, start, ask):
    controller = start(ROUTING.load(name)(), 2)
    index = index_of(controller)
    only = ([True, False], [False, True])
    for request, node in enumerate((2, 5)):
        controller.act(ask(node, [0, 0], 0.0, request, mask=only[request], incarnation=[0, 0]))
    assert index.tokens.tolist() == [200, 200]
    controller.act(ask(6, [0, 0], 1.0, 2, mask=only[1], incarnation=[1, 0]))
    assert index.tokens.tolist() == [0, 210]
    controller.act(ask(2, [0, 0], 2.0, 3, mask=only[0], incarnation=[1, 0]))  # nothing new: what it has since, it keeps
    controller.act(ask(3, [0, 0], 3.0, 4, mask=only[0], incarnation=[1, 0]))
    assert index.tokens.tolist() == [300, 210]
    controller.act(ask(6, [0, 0], 4.0, 5, mask=only[1], incarnation=[2, 0]))
    assert index.tokens.tolist() == [0, 210]
    controller.reset(fleet(2), 0)  # a new episode counts from 0 again
    index = index_of(controller)
    controller.act(ask(2, [0, 0], 0.0, 0, mask=only[0], incarnation=[0, 0]))
    controller.act(ask(6, [0, 0], 1.0, 1, mask=only[1], incarnation=[2, 0]))
    assert index.tokens.tolist() == [0, 10]


@pytest.mark.parametrize("name", NAMES)
def test_faults__every_router_serves_a_fleet_that_fails_and_comes_back(name):
    load = GSP(groups=6, prompts_per_group=20, lens=(64, 256), rate_rps=20.0).generate(1)
    schedule = tuple(
        FleetEvent(*entry)
        for entry in [(1.0, 2, "join"), (2.0, 0, "fail"), (2.5, 1, "fail"), (3.5, 0, "recover"), (4.0, 2, "fail")]
    )
    fleet = ClusterConfig(workers=3, capacity_tokens=4000, schedule=schedule, detect_s=0.2, network_s=(0.0, 0.05, 0.1))
    backend, controller = SimulatedBackend(load, fleet, "lru", seed=0), ROUTING.load(name)()
    controller.reset(backend.spec, 0)
    while (decision := backend.run_to_decision()) is not None:
        controller.observe(backend.completions())
        backend.apply(controller.act(decision))
    records = backend.records()
    assert sorted(records["request"]) == list(range(len(load.requests)))
    assert (records["status"] == DONE).mean() > 0.9 and (records["attempts"] > 1).any()


def test_restart__moves_sessions_away(start, ask):
    controller = start(ROUTING.load("session_affinity")(), 2)
    for worker in (0, 1):
        mask = [worker == 0, worker == 1]
        controller.act(dataclasses.replace(ask(2, [0, 0], mask=mask, incarnation=[0, 0]), session=worker))
    assert controller.worker_of == {0: 0, 1: 1}
    # worker 1 holds the same prompt still, so session 0 goes there
    assert controller.act(ask(2, [0, 0], 1.0, incarnation=[1, 0])) == 1
    assert controller.worker_of == {0: 1, 1: 1}
