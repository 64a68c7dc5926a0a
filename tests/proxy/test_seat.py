import numpy as np
import pytest

from kvgym.backends.simulated import SimulatedBackend
from kvgym.config.cluster import ClusterConfig
from kvgym.config.contracts import make_controller
from kvgym.config.names import table
from kvgym.errors import SimulationError
from kvgym.forest.forest import Forest
from kvgym.proxy.reading import Asked
from kvgym.proxy.seat import Seat, Signals
from kvgym.types import DONE, FAILED, REQUEST
from kvgym.workloads.building.sessions import make_workload
from kvgym.workloads.gsp import GSP
from kvgym.workloads.multiturn import MultiTurn

LIVE_ONLY = {"learned"}


def in_ids(source, seed):
    """A workload's prompts as token ids, one client at a time, over a forest of these ids."""
    load = source.generate(seed)
    order = []
    for head in load.heads:
        while head >= 0:
            order.append(int(head))
            head = load.requests["next"][head]
    prompts = [
        load.forest.materialise(int(load.requests["prompt_node"][r]), int(load.requests["prompt_tokens"][r]), 50_000)
        for r in order
    ]
    forest = Forest()
    requests = np.zeros(len(order), REQUEST)
    requests["prompt_node"] = [forest.insert(ids) for ids in prompts]
    requests["output_node"] = -1
    requests["prompt_tokens"] = [len(ids) for ids in prompts]
    requests["prompt_chars"] = np.rint(requests["prompt_tokens"] * forest.chars_per_token)
    requests["output_tokens"] = 4
    requests["session"] = np.arange(len(order))
    return make_workload("ids", forest, requests, clients=1, notes={}), prompts


SOURCES = {
    "gsp": GSP(groups=20, prompts_per_group=25, lens=(64, 128, 200), prefix_ratio=0.5),
    "multi-turn": MultiTurn(conversations=100, turns=(3, 7), message_tokens=40),
}


@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize("name", sorted(set(table("routing")) - LIVE_ONLY))
def test_decisions__are_those_of_a_simulated_run(name, source):
    """500 requests one at a time: what the seat shows, and so what the controller does, is what a run shows it."""
    load, prompts = in_ids(SOURCES[source], 5)
    cluster = ClusterConfig(workers=2, capacity_tokens=4_000)
    backend = SimulatedBackend(load, cluster, "lru", 3)
    simulated = make_controller(name, {}, 2)
    simulated.reset(backend.spec, 3)
    now = [0.0]
    seat = Seat(lambda workers: make_controller(name, {}, workers), [4_000, 4_000], lambda: now[0], seed=3)
    ticket = None
    while (decision := backend.run_to_decision()) is not None:
        ended = backend.completions()
        simulated.observe(ended)
        for row in ended:
            now[0] = float(row["first_token_s"])
            seat.first(ticket)
            now[0] = float(row["finish_s"])
            seat.leave(ticket)
            seat.end(ticket, DONE, int(row["hit_tokens"]), int(row["output_tokens"]))
        now[0] = decision.time_s
        signals = Signals(
            decision.running, decision.queued, decision.kv_used_tokens, np.ones(2, bool), np.zeros(2, np.int64)
        )
        ticket = seat.enter(Asked(prompts[decision.request].astype(np.int64), 4, "", "", 0))
        seen = seat.route(ticket, signals)
        assert seen.hit_tokens.tolist() == decision.hit_tokens.tolist()
        expected = int(simulated.act(decision))
        assert ticket.worker == expected, f"request {decision.request}"
        backend.apply(expected)
    assert ticket.request == 499


def seat_of(workers=3, **options):
    now = [0.0]
    made = Seat(lambda n: make_controller("cache_aware", {}, n), [1000] * workers, lambda: now[0], **options)
    return made, now


def signals(*up):
    zeros = np.zeros(len(up), np.int64)
    return Signals(zeros, zeros, zeros, np.array(up, bool), zeros)


def asked(seed, tokens=100, session=""):
    return Asked(np.random.default_rng(seed).integers(0, 1000, tokens), 8, session, "", 0)


def test_retry__goes_to_one_that_it_has_not_tried():
    seat, _ = seat_of()
    ticket = seat.enter(asked(0))
    tried = []
    for _ in range(3):
        seat.route(ticket, signals(1, 1, 1))
        tried.append(ticket.worker)
        seat.leave(ticket)
    assert sorted(tried) == [0, 1, 2]
    seat.route(ticket, signals(0, 1, 0))
    assert ticket.worker == 1
    assert ticket.attempts == 4
    assert seat.inflight[0].tolist() == [0, 1, 0]


def test_nobody_up__is_said():
    seat, _ = seat_of()
    with pytest.raises(SimulationError, match="no worker is up"):
        seat.route(seat.enter(asked(0)), signals(0, 0, 0))


def test_books__are_balanced_whatever_happens():
    seat, now = seat_of()
    for number in range(50):
        ticket = seat.enter(asked(number))
        seat.route(ticket, signals(1, 1, 1))
        now[0] += 0.01
        seat.leave(ticket)
        seat.end(ticket, FAILED if number % 3 else DONE, 0, 4)
    assert not seat.inflight.any()


def test_forest__is_bounded_and_the_last_prompts_are_still_known():
    seat, now = seat_of(workers=2, most_tokens=1)
    for number in range(400):
        ticket = seat.enter(asked(number))
        seat.route(ticket, signals(1, 1))
        now[0] += 0.01
        seat.leave(ticket)
        seat.end(ticket, DONE, 0, 4)
    assert len(seat._forest) < 200
    before = ticket.worker
    again = seat.enter(asked(399))
    seat.route(again, signals(1, 1))
    assert again.worker == before
    assert again.believed_tokens == 99


def test_resize__keeps_what_was_sent_to_those_that_stay():
    seat, _ = seat_of(workers=2)
    ticket = seat.enter(asked(7))
    seat.route(ticket, signals(1, 1))
    seat.resize([1000] * 3)
    assert seat.inflight[0].sum() == 1
    again = seat.enter(asked(7))
    seat.route(again, signals(1, 1, 1))
    assert again.worker == ticket.worker
    seat.leave(ticket)
    seat.end(ticket, DONE, 0, 1)  # of the time before: not shown, and no harm
    seat.leave(again)
    assert not seat.inflight.any()


def test_sessions__have_a_number_each():
    seat, _ = seat_of()
    numbers = [seat.enter(asked(i, session=name)).session for i, name in enumerate(["a", "b", "a"])]
    assert numbers[0] == numbers[2] != numbers[1]
