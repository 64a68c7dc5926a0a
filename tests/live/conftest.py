"""Real SGLang servers on the CPU: one fleet at a time, kept between tests that ask for the same one."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kvgym.backends.sglang import pool
from kvgym.backends.sglang.backend import LiveBackend
from kvgym.backends.simulated import SimulatedBackend
from kvgym.cluster import ClusterConfig
from kvgym.config import build
from kvgym.types import REQUEST, Decision
from kvgym.workloads.base import Workload
from kvgym.workloads.forest import Forest
from kvgym.workloads.sessions import make_workload

POOL_TOKENS = 4096


@pytest.fixture(scope="session")
def live_python(repo_root: Path) -> Path:
    named = os.environ.get("KVGYM_LIVE_PYTHON")
    python = Path(named) if named else repo_root / ".live/bin/python"
    if not python.is_file():
        pytest.skip(f"no SGLang at {named or '.live/bin/python'}; run `scripts/setup_live.sh .live`")
    return python


@pytest.fixture(scope="session")
def make_cluster(live_python: Path) -> Iterator[Callable[..., ClusterConfig]]:
    """Return a function that makes a live cluster; extra keywords go to its `live` part."""

    def make(workers: int = 2, page_size: int = 1, retries: int = 3, **live: Any) -> ClusterConfig:
        live = {"model": str(live_python.parent.parent / "model"), "python": str(live_python)} | live
        if "urls" in live:
            del live["model"], live["python"]
        sizes = {"capacity_tokens": POOL_TOKENS, "chunk_tokens": POOL_TOKENS, "page_size": page_size}
        return build(ClusterConfig, {"workers": workers, "retries": retries, "live": live, **sizes}, "cluster")

    yield make
    pool.release()


@pytest.fixture
def open_backend() -> Iterator[Callable[..., LiveBackend]]:
    """Return `LiveBackend`; what it opened is closed after the test."""
    opened: list[LiveBackend] = []

    def make(*arguments: Any, **keywords: Any) -> LiveBackend:
        opened.append(LiveBackend(*arguments, **keywords))
        return opened[-1]

    yield make
    for backend in opened:
        backend.close()


def play(backend: Any, choose: Callable[[Decision], int]) -> np.ndarray:
    """Route every request by `choose`; return the records in order of the requests."""
    while (decision := backend.run_to_decision()) is not None:
        backend.apply(choose(decision))
    records = backend.records()
    return records[np.argsort(records["request"])]


def text_workload(
    prompts: list[list[int]],
    outputs: list[int],
    page_size: int = 1,
    clients: int = 1,
    sessions: list[int] | None = None,
) -> Workload:
    """Return a closed-loop workload over token-id prompts; requests of one session follow each other.

    A prompt that begins with the one before it in its session, and is longer by at least that one's answer, continues
    that answer.
    """
    forest = Forest(page_size)
    requests = np.zeros(len(prompts), REQUEST)
    requests["prompt_node"] = [forest.insert(prompt) for prompt in prompts]
    requests["output_node"] = -1
    for i in range(len(prompts) - 1):
        length = len(prompts[i])
        follows = sessions is not None and sessions[i] == sessions[i + 1]
        if follows and prompts[i + 1][:length] == prompts[i] and len(prompts[i + 1]) >= length + outputs[i]:
            requests["output_node"][i] = forest.insert(prompts[i + 1][: length + outputs[i]])
    requests["prompt_tokens"] = [len(prompt) for prompt in prompts]
    requests["output_tokens"] = outputs
    requests["session"] = np.arange(len(prompts)) if sessions is None else sessions
    return make_workload("text", forest, requests, clients=clients, notes={})


def replayed(live: LiveBackend, workload: Workload) -> Workload:
    """Return the workload whose prompts and answers are those that were really sent and returned."""
    forest = Forest(workload.page_size)
    requests = workload.requests.copy()
    for r in range(len(requests)):
        prompt = live.prompt(r).tolist()
        requests["prompt_node"][r] = forest.insert(prompt)
        requests["output_node"][r] = forest.insert(prompt + live.output(r))
    return Workload("replay", forest, requests, workload.heads, workload.clients)


@pytest.fixture(scope="session")
def tools() -> Any:
    """Return the helpers of this file: test modules can't import a conftest."""

    class Tools:
        play = staticmethod(play)
        text_workload = staticmethod(text_workload)
        replayed = staticmethod(replayed)
        simulated = SimulatedBackend

    return Tools
