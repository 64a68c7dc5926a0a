"""Servers that die, hang, come back or refuse: every request has one record, nothing hangs."""

from __future__ import annotations

import dataclasses
import os
import signal
import threading
import time
from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np
import pytest

import kvgym  # noqa: F401  (registers the environments)
from kvgym.backends.sglang import pool
from kvgym.backends.sglang.backend import LiveBackend
from kvgym.backends.sglang.launcher import Fleet, free_port
from kvgym.config.options import to_plain
from kvgym.errors import BackendError
from kvgym.types import DONE, FAILED, REJECTED

pytestmark = [pytest.mark.live, pytest.mark.slow, pytest.mark.timeout(600)]
REQUESTS = 80


def requests_of(tools: Any, outputs: list[int]) -> Any:
    """Requests of 300 tokens with a beginning in common, eight at a time."""
    prompts = [[5] * 100 + [5 + (i * 7 + j * 3) % 990 for j in range(200)] for i in range(REQUESTS)]
    return tools.text_workload(prompts, outputs, clients=8)


@pytest.fixture(scope="module")
def workload(tools: Any) -> Any:
    """Answers of forty tokens."""
    return requests_of(tools, [40] * REQUESTS)


@pytest.fixture(scope="module")
def long_answers(tools: Any) -> Any:
    """Answers that are not over when the fault comes, on a fast machine either; the others are short."""
    return requests_of(tools, [150 if 4 <= i < 40 else 40 for i in range(REQUESTS)])


@pytest.fixture(scope="module")
def fleet(make_cluster: Any) -> Fleet:
    """Two healthy servers; those that an earlier test has killed are started anew."""
    pool.acquire(make_cluster(), "lru")
    found = pool.fleet()
    assert found is not None
    return found


def least_busy(decision: Any) -> int:
    return int(np.argmin(np.where(decision.mask, decision.inflight, 1 << 30)))


@dataclasses.dataclass
class Episode:
    """What an episode with a worker that was killed and started again has shown; numbers are those of decisions."""

    records: Any
    decisions: list[Any]
    killed: int  # worker 0 was killed before this one
    started: int  # its new server began to start
    healthy: int  # that was ready
    back: int  # the first one after that in which it can be chosen


@pytest.fixture(scope="module")
def killed(fleet: Fleet, long_answers: Any, make_cluster: Any, tools: Any) -> Episode:
    """Kill worker 0 in mid-stream, start it again while requests go on, and wait until it is back."""
    # A dead server refuses connections, which counts at once; a slow one shall not count as dead.
    backend = LiveBackend(long_answers, make_cluster(poll_timeout_s=20.0), "lru", 0)
    decisions: list[Any] = []
    marks: dict[str, int] = {}

    def choose(decision: Any) -> int:
        number = len(decisions)
        if "killed" not in marks:
            if number >= 20 and decision.inflight[0] >= 1:
                time.sleep(0.1)  # its answers are under way
                os.killpg(fleet.group(0), signal.SIGKILL)
                marks["killed"] = number
        elif "started" not in marks:
            if number >= marks["killed"] + 25:
                fleet.start_worker(0)
                marks["started"] = number
        elif "healthy" not in marks:
            if number >= marks["started"] + 10:
                fleet.wait_healthy(0)
                marks["healthy"] = number
        elif "back" not in marks:
            if decision.mask[0]:
                marks["back"] = number
            else:
                time.sleep(1.0)  # some polls; fewer on a busy machine
        decisions.append(decision)
        return least_busy(decision)

    try:
        records = tools.play(backend, choose)
    finally:
        backend.close()
    return Episode(records, decisions, **marks)


def test_killed_in_mid_stream__its_requests_move_and_none_is_lost_or_counted_twice(killed: Episode) -> None:
    records = killed.records
    assert records["request"].tolist() == list(range(REQUESTS))
    assert (records["status"] == DONE).all()
    assert records["attempts"].max() >= 2
    assert set(records["worker"][records["attempts"] > 1]) == {1}
    assert len(killed.decisions) == records["attempts"].sum()


def test_killed_and_slow_start__masked_from_death_to_health(killed: Episode) -> None:
    up = np.array([decision.mask[0] for decision in killed.decisions])
    assert up[: killed.killed + 1].all()
    assert not up[killed.started : killed.healthy + 1].any()
    assert up[killed.back :].all()
    assert all(decision.mask[1] for decision in killed.decisions)


def test_restarted__it_is_known_to_be_empty(killed: Episode) -> None:
    before, after = killed.decisions[killed.started - 1], killed.decisions[killed.back]
    assert before.incarnation.tolist() == [0, 0]
    assert after.incarnation.tolist() == [1, 0]
    assert after.hit_tokens[1] >= 100
    last = killed.decisions[-1]
    back = [r for r in killed.decisions[killed.back :] if killed.records["worker"][r.request] == 0]
    assert back
    assert killed.records["hit_tokens"][back[0].request] == 0 == back[0].hit_tokens[0]
    assert last.hit_tokens[0] >= 100


def test_stopped_for_five_seconds__masked_and_nothing_is_lost_or_sent_twice(
    fleet: Fleet, long_answers: Any, make_cluster: Any, open_backend: Any, tools: Any
) -> None:
    fleet.revive()
    backend = open_backend(long_answers, make_cluster(poll_timeout_s=1.0), "lru", 0)
    resume = threading.Timer(5.0, lambda: os.killpg(fleet.group(1), signal.SIGCONT))
    masks: list[bool] = []
    stopped = -1

    def choose(decision: Any) -> int:
        nonlocal stopped
        if stopped < 0 and len(masks) >= 20 and decision.inflight[1] >= 1:
            stopped = len(masks)
            os.killpg(fleet.group(1), signal.SIGSTOP)
            resume.start()
            time.sleep(4.0)  # two polls without an answer
        elif len(masks) >= 60 and not decision.mask[1]:
            resume.join()
            time.sleep(1.0)  # a poll with one; more of them on a busy machine
        masks.append(bool(decision.mask[1]))
        return least_busy(decision)

    try:
        records = tools.play(backend, choose)
    finally:
        os.killpg(fleet.group(1), signal.SIGCONT)
        resume.cancel()
    assert records["request"].tolist() == list(range(REQUESTS))
    assert (records["status"] == DONE).all()
    assert (records["attempts"] == 1).all()
    assert not masks[stopped + 1]
    assert masks[-1]
    assert backend.spec.capacity_tokens == (4096, 4096)


@pytest.mark.parametrize("fault", ["unavailable", "cut", "short"])
def test_busy_or_broken_answers__sent_again(
    fault: str, fleet: Fleet, workload: Any, make_cluster: Any, open_backend: Any, tools: Any, proxied: Any
) -> None:
    fleet.revive()
    with proxied(fleet.urls[0], fault, faults=5) as proxy:
        cluster = make_cluster(urls=[proxy.url, fleet.urls[1]], retries=5)
        backend = open_backend(workload, cluster, "lru", 0)
        records = tools.play(backend, least_busy)
        backend.close()
    assert records["request"].tolist() == list(range(REQUESTS))
    assert (records["status"] == DONE).all()
    assert (records["attempts"] - 1).sum() == 5
    assert (records["output_tokens"] == 40).all()
    assert backend.progress().in_system_s == pytest.approx((records["finish_s"] - records["arrival_s"]).sum(), rel=0.1)


def test_unavailable_for_good__failed_after_the_retries(
    fleet: Fleet, make_cluster: Any, open_backend: Any, tools: Any, proxied: Any
) -> None:
    fleet.revive()
    workload = tools.text_workload([[7] * 50] * 3, [4] * 3)
    with proxied(fleet.urls[0], "unavailable", faults=1000) as proxy:
        backend = open_backend(workload, make_cluster(workers=1, urls=[proxy.url], retries=2), "lru", 0)
        records = tools.play(backend, lambda decision: 0)
        backend.close()
    assert (records["status"] == FAILED).all()
    assert (records["attempts"] == 3).all()
    assert proxy.generations == 9


def test_all_gone__requests_end_as_failed(
    fleet: Fleet, workload: Any, make_cluster: Any, open_backend: Any, tools: Any, proxied: Any
) -> None:
    fleet.revive()
    with proxied(fleet.urls[0], "", faults=0) as proxy:
        cluster = make_cluster(workers=1, urls=[proxy.url], down_timeout_s=2.0, stall_timeout_s=20.0)
        backend = open_backend(workload, cluster, "lru", 0)
        seen: list[int] = []

        def choose(decision: Any) -> int:
            seen.append(decision.request)
            if len(seen) == 20:
                proxy.shutdown()
                proxy.server_close()
            return 0

        records = tools.play(backend, choose)
        backend.close()
    assert records["request"].tolist() == list(range(REQUESTS))
    assert set(records["status"]) == {DONE, FAILED}


def test_too_long__refused_once_and_counted(fleet: Fleet, make_cluster: Any, open_backend: Any, tools: Any) -> None:
    fleet.revive()
    prompts = [[7] * 100, [9] * 5000, [9] * 9000, [11] * 100]  # too long for the cache, and for the model
    backend = open_backend(tools.text_workload(prompts, [4] * 4), make_cluster(), "lru", 0)
    records = tools.play(backend, lambda decision: 0)
    assert records["status"].tolist() == [DONE, REJECTED, REJECTED, DONE]
    assert records["attempts"].tolist() == [1, 1, 1, 1]


def test_refused_at_reset__names_the_url(make_cluster: Any) -> None:
    url = f"http://127.0.0.1:{free_port('127.0.0.1')}"
    cluster = to_plain(make_cluster(workers=1, urls=[url]))
    env = gymnasium.make("kvgym/Routing-v0", workload="gsp_small", cluster=cluster, eviction="lru", backend="sglang")
    with pytest.raises(BackendError, match=rf"cannot reach an SGLang server at {url}.*is it running"):
        env.reset(seed=0)
    env.close()


def test_port_in_use__the_error_says_so(
    fleet: Fleet, make_cluster: Any, tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken: Callable[[str], int] = lambda host: fleet.ports[0]  # noqa: E731
    monkeypatch.setattr("kvgym.backends.sglang.launcher.free_port", taken)
    with pytest.raises(BackendError, match=rf"port {fleet.ports[0]}"):
        Fleet(make_cluster(workers=1), "lru", tmp_path / "logs")
