from __future__ import annotations

import numpy as np
import pytest

from controllers.routing import ROUTING
from kvgym.config.cluster import ClusterConfig
from kvgym.config.signals import SignalsConfig
from kvgym.harness.compare.cell import Cell
from kvgym.harness.compare.router_group import Routers, make_routers
from kvgym.harness.compare.run import run
from kvgym.types import DONE
from kvgym.workloads.gsp import GSP


def cell(controller: str, signals: SignalsConfig, **options: object) -> Cell:
    source = GSP(groups=12, prompts_per_group=8, lens=(64, 128), rate_rps=20.0)
    fleet = ClusterConfig(workers=3, capacity_tokens=1000)
    return Cell("gsp", source, "three", fleet, controller, controller, options, "lru", {}, signals=signals)


class Clerk:
    """Sends in turn, and writes down what it was asked and shown."""

    made: list[Clerk] = []  # noqa: RUF012 - read back after a run that made its own objects

    def __init__(self) -> None:
        Clerk.made.append(self)

    def reset(self, spec, seed):
        self.seed, self.sent, self.seen, self.inflight_errors = seed, [], [], 0

    def act(self, decision):
        self.inflight_errors += int(decision.inflight.sum() != len(self.sent) - len(self.seen))
        self.sent.append(decision.request)
        return len(self.sent) % 3

    def observe(self, records):
        self.seen += records["request"].tolist()


def test_routers__each_is_shown_its_own_completions_and_counts_its_own(monkeypatch):
    monkeypatch.setattr(Clerk, "made", [])
    monkeypatch.setattr("kvgym.harness.compare.run.make_controller", lambda cell: Clerk())
    records = run(cell("clerk", SignalsConfig(routers=4, router_by="request")), seed=5).records
    clerks = Clerk.made
    assert len(clerks) == 4 and clerks[0].seed == 5 and len({clerk.seed for clerk in clerks}) == 4
    assert sorted(request for clerk in clerks for request in clerk.sent) == list(range(96))
    for clerk in clerks:
        assert clerk.inflight_errors == 0
        assert set(clerk.seen) <= set(clerk.sent) and len(clerk.seen) > 5
        order = [r for r in records["request"].tolist() if r in set(clerk.seen)]
        assert clerk.seen == order


def test_routers__one_is_the_controller_itself():
    assert isinstance(make_routers(Clerk, 1), Clerk)
    assert isinstance(make_routers(Clerk, 2), Routers)


def test_routers__records_that_nobody_sent_go_to_nobody():
    routers = make_routers(Clerk, 2)
    routers.reset(None, 0)
    routers.observe(np.zeros(3, [("request", np.int32)]))
    assert [clerk.seen for clerk in routers.controllers] == [[], []]


@pytest.mark.parametrize("name", [name for name in ROUTING if name != "learned"])  # that one needs a file
def test_every_controller__works_without_metrics_and_among_others(name):
    records = run(cell(name, SignalsConfig("events", metrics=False, event_delay_s=0.5, routers=2)), seed=0).records
    assert (records["status"] == DONE).all() and len(records) == 96
    assert len(set(records["worker"])) > 1
    assert (records["predicted_s"] >= 0).all() == name.startswith("lbgr")


def test_lbgr__needs_no_metrics():
    """Its own requests in flight and the latencies that it sees are all that it reads."""
    with_metrics, without = (run(cell("lbgr", SignalsConfig(metrics=on)), seed=0).records for on in (True, False))
    assert with_metrics.tobytes() == without.tobytes()
    assert without["hit_tokens"].sum() > 0.3 * without["prompt_tokens"].sum()


def test_several_routers__balance_worse_than_one():
    """Each counts only its own requests in flight, so the shortest queue is found less often."""
    source = GSP(groups=40, prompts_per_group=8, rate_rps=10.0)
    mean_s = {}
    for routers in (1, 8):
        signals = SignalsConfig(routers=routers)
        made = Cell("gsp", source, "l40x4", ClusterConfig(), "sq", "shortest_queue", {}, "lru", {}, signals=signals)
        latencies = [(r["finish_s"] - r["arrival_s"]).mean() for r in (run(made, seed).records for seed in range(3))]
        mean_s[routers] = np.mean(latencies)
    assert mean_s[8] > 1.05 * mean_s[1]
