from __future__ import annotations

import numpy as np
import pytest

from controllers.routing import ROUTING
from kvgym.errors import SimulationError, UnknownNameError

NAMES = ["random", "round_robin", "shortest_queue", "cache_aware", "cache_aware_014", "lbgr_release", "lbgr"]
NAMES += ["power_of_two", "dynamo", "llmd", "lmetric", "cache_aware_tuned", "session_affinity"]


def test_registry__unknown_name_lists_known_ones_and_the_nearest():
    with pytest.raises(UnknownNameError, match="did you mean 'lbgr_release'") as error:
        ROUTING.load("lbgr_relase")
    assert all(name in str(error.value) for name in NAMES)


def test_registry__holds_exactly_the_documented_names():
    assert list(ROUTING) == NAMES


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
def test_mask__that_allows_nobody_is_an_error(name, fleet, ask):
    controller = ROUTING.load(name)()
    controller.reset(fleet(2), 0)
    with pytest.raises(SimulationError, match="allows no worker"):
        controller.act(ask(1, [0, 0], mask=[False, False]))


@pytest.mark.parametrize("name", ["cache_aware", "cache_aware_014", "cache_aware_tuned", "lbgr_release"])
def test_match__is_a_prefix_not_a_set_of_texts(name, fleet, ask):
    # "A" is cached on worker 0, "B" on worker 1: "B A" begins with B, so only worker 1 has anything of it.
    controller = ROUTING.load(name)(max_tree_chars=2**20)
    controller.reset(fleet(2), 0)
    controller.tree.insert(0, 1, 0.0)
    controller.tree.insert(1, 4, 0.0)
    assert controller.tree.match_chars(5).tolist() == [0, 400]
    assert controller.act(ask(5, [0, 0], 1.0, prompt_chars=780)) == 1


def test_miss__goes_to_the_idle_worker_by_the_new_rule_and_to_the_small_tree_by_the_old(fleet, ask):
    # Worker 0: small tree, long queue. Worker 1: large tree, idle.
    choices = {}
    for name in ("cache_aware", "cache_aware_014"):
        controller = ROUTING.load(name)()
        controller.reset(fleet(2), 0)
        controller.tree.insert(0, 6, 0.0)
        controller.tree.insert(1, 2, 0.0)
        choices[name] = controller.act(ask(5, [30, 0], 1.0))
    assert choices == {"cache_aware": 1, "cache_aware_014": 0}
