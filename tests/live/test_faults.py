"""Servers that die, hang, come back or refuse: every request has one record, nothing hangs."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from kvgym.backends.sglang import pool
from kvgym.backends.sglang.launcher import Fleet
from kvgym.errors import BackendError
from kvgym.types import DONE, FAILED, REJECTED

pytestmark = [pytest.mark.live, pytest.mark.slow, pytest.mark.timeout(600)]


@pytest.fixture
def workload(tools: Any) -> Any:
    """Eighty requests of 300 tokens, eight at a time, forty tokens each."""
    prompts = [[5 + (i * 7 + j * 3) % 990 for j in range(300)] for i in range(80)]
    return tools.text_workload(prompts, [40] * 80, clients=8)


@pytest.fixture
def fleet(make_cluster: Any) -> Fleet:
    """Two healthy servers; dead ones of an earlier test are started anew."""
    pool.acquire(make_cluster(), "lru")
    found = pool.fleet()
    assert found is not None
    for worker in range(2):
        found.wait_healthy(worker)
    return found


def least_busy(decision: Any) -> int:
    return int(np.argmin(np.where(decision.mask, decision.inflight, 1 << 30)))


def after(delay_s: float, *actions: Callable[[], None]) -> threading.Timer:
    """Start the actions, one after another, `delay_s` from now."""
    timer = threading.Timer(delay_s, lambda: [action() for action in actions])
    timer.start()
    return timer


def test_killed_in_mid_stream__its_requests_move_and_it_returns_empty(
    fleet: Fleet, workload: Any, make_cluster: Any, open_backend: Any, tools: Any
) -> None:
    backend = open_backend(workload, make_cluster(), "lru", 0)
    masked, incarnations = [], []

    def choose(decision: Any) -> int:
        masked.append(not decision.mask[0])
        incarnations.append(int(decision.incarnation[0]))
        return least_busy(decision)

    timer = after(1.0, lambda: os.killpg(fleet.group(0), signal.SIGKILL))
    records = tools.play(backend, choose)
    timer.join()
    assert records["request"].tolist() == list(range(80))
    assert (records["status"] == DONE).all()
    assert records["attempts"].max() >= 2
    assert any(masked)
    fleet.start_worker(0)
    fleet.wait_healthy(0)
    time.sleep(1.0)
    again = open_backend(workload, make_cluster(), "lru", 1)
    records = tools.play(again, least_busy)
    assert set(records["worker"]) == {0, 1}


def test_stopped_for_five_seconds__nothing_is_lost_or_sent_twice(
    fleet: Fleet, workload: Any, make_cluster: Any, open_backend: Any, tools: Any
) -> None:
    backend = open_backend(workload, make_cluster(poll_timeout_s=0.5), "lru", 0)
    masked = []

    def choose(decision: Any) -> int:
        masked.append(not decision.mask[1])
        return least_busy(decision)

    stop = after(
        0.7,
        lambda: os.killpg(fleet.group(1), signal.SIGSTOP),
        lambda: time.sleep(5),
        lambda: os.killpg(fleet.group(1), signal.SIGCONT),
    )
    records = tools.play(backend, choose)
    stop.join()
    assert (records["status"] == DONE).all()
    assert (records["attempts"] == 1).all()
    assert any(masked)


def test_all_dead__requests_end_as_failed(workload: Any, make_cluster: Any, open_backend: Any, tools: Any) -> None:
    pool.release()
    cluster = make_cluster(workers=1, down_timeout_s=2.0)
    backend = open_backend(workload, cluster, "lru", 0)
    started = pool.fleet()
    assert started is not None
    timer = after(0.5, lambda: os.killpg(started.group(0), signal.SIGKILL))
    records = tools.play(backend, lambda decision: 0)
    timer.join()
    pool.release()
    assert sorted(records["request"]) == list(range(80))
    assert (records["status"] == FAILED).any()
    progress = backend.progress()
    assert progress.in_system_s == pytest.approx((records["finish_s"] - records["arrival_s"]).sum(), rel=0.05)


def test_too_long__refused_once_and_counted(fleet: Fleet, make_cluster: Any, open_backend: Any, tools: Any) -> None:
    prompts = [[7] * 100, [9] * 5000, [11] * 100]
    backend = open_backend(tools.text_workload(prompts, [4, 4, 4]), make_cluster(), "lru", 0)
    records = tools.play(backend, lambda decision: 0)
    assert records["status"].tolist() == [DONE, REJECTED, DONE]
    assert records["attempts"].tolist() == [1, 1, 1]


def test_wrong_key__ends_the_run_and_names_the_server(
    make_cluster: Any, open_backend: Any, tools: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    pool.release()
    monkeypatch.setenv("KVGYM_TEST_KEY", "right")
    cluster = make_cluster(workers=1, api_key_variable="KVGYM_TEST_KEY")
    urls = [server.url for server in pool.acquire(cluster, "lru")]
    monkeypatch.setenv("KVGYM_TEST_KEY", "wrong")
    with pytest.raises(BackendError, match=rf"{urls[0]}.*api_key_variable"):
        pool.acquire(make_cluster(workers=1, urls=urls, api_key_variable="KVGYM_TEST_KEY"), "lru")
    pool.release()
