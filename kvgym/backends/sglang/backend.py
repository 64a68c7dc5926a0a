"""The live backend sends a workload's requests to real SGLang servers in wall time, behind the backend contract.

Open-loop requests leave at their arrival times (divided by `time_scale`), closed-loop turns after the real answers. All
times of records are wall seconds since the first decision, as the client sees them.

What is lost on the way (no connection, a broken or silent stream, HTTP 429 and 5xx) comes back as a new decision after
`retry_delay_s`, at most `retries` times; then it ends as FAILED, as do the later turns of its session. Each loss is a
logged warning with its cause. HTTP 400 and 413 end as REJECTED. A wrong API key ends the run. A server that refuses
connections, breaks a stream or stays silent for two polls is masked until a poll succeeds; if a connection had been
refused, it counts as restarted with an empty cache.
"""

from __future__ import annotations

import dataclasses
import heapq
import logging
import queue
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from kvgym.backends.base import Load, Progress, Snapshot
from kvgym.backends.sglang import pool
from kvgym.backends.sglang.channel import Channel
from kvgym.backends.sglang.client import ANSWERED, LOST, REFUSED, Answer
from kvgym.backends.sglang.kv_events import KVEvents
from kvgym.backends.sglang.launcher import Server, api_key
from kvgym.backends.sglang.ledger import Ledger
from kvgym.backends.sglang.prompts import Prompts
from kvgym.backends.simulated import engine_options
from kvgym.config.cluster import ClusterConfig
from kvgym.config.signals import DEFAULT_SIGNALS, SignalsConfig
from kvgym.engine.occupancy import prefixes_of
from kvgym.engine.serving.alone import service_s
from kvgym.errors import BackendError, ConfigError, SimulationError
from kvgym.knowledge.view import CacheKnowledge
from kvgym.types import DONE, FAILED, REJECTED, Decision, FleetSpec
from kvgym.workloads.base import Workload

logger = logging.getLogger(__name__)

STATUS = {ANSWERED: DONE, REFUSED: REJECTED, LOST: FAILED}
TICK_S = 0.05
"""Longest wait before the state of the servers is looked at again."""


class LiveBackend:
    """One episode on a live fleet; servers that kvgym started stay up for the next episode.

    Args:
        workload: requests over a forest compiled for the cluster's page size.
        cluster: the fleet; its `live` part says where it is.
        eviction: eviction policy of the servers; attached servers must have it already.
        seed: of the episode (the servers have seeds of their own).
        signals: `observability` router or events, and `index_tokens`; all else is as real as it is.
        front: router in front of the servers that takes all requests, whatever worker is chosen; '' for none.
        journal: file to which each ended request is appended as a JSON line at once; none: not kept.

    Raises:
        ConfigError: the cluster has no `live` part, or the observability is not to be had.
        BackendError: the servers cannot be started or reached.
    """

    deterministic = False
    forkable = False

    def __init__(
        self,
        workload: Workload,
        cluster: ClusterConfig,
        eviction: str,
        seed: int,
        signals: SignalsConfig = DEFAULT_SIGNALS,
        *,
        front: str = "",
        journal: Path | None = None,
    ) -> None:
        if cluster.live is None:
            raise ConfigError("backend sglang needs a cluster with a `live` part (see kvgym.config.live.LiveConfig)")
        _check_signals(signals)
        self.workload, self.cluster, self.live = workload, cluster, cluster.live
        self.servers = pool.acquire(cluster, eviction)
        vocab_size = self.live.vocab_size or pool.vocabulary(self.servers[0])
        self._prompts = Prompts(workload, vocab_size)
        cost = partial(service_s, engine_options(cluster).view(np.recarray)[0])
        self._ledger = Ledger(workload.requests, _labels(self.servers, front), journal, bool(front), cost)
        self._events = KVEvents(self.servers, workload.page_size) if signals.observability == "events" else None
        forest = self._events.forest if self._events else workload.forest
        self._known = CacheKnowledge(signals, forest, self.spec.capacity_tokens, seed)
        self._bodies: dict[int, np.ndarray] = {}
        self._outputs: dict[int, list[int]] = {}
        self._due: list[tuple[float, int]] = []
        self._backlog = 0
        self._start_s, self._down_s = -1.0, -1.0
        self._pending = -1
        self._evicted_before: list[int] = []
        self._channel = Channel(self.live, [s.url for s in self.servers], api_key(self.live), front)
        try:
            if self._events:
                self._events.wait_heard(self._channel.probe, self.live.connect_timeout_s)
            self._channel.flush()
            self._evicted_before = self._channel.evicted_tokens()
        except BaseException:
            self.close()
            raise

    @property
    def spec(self) -> FleetSpec:
        """What a controller is told at reset; capacities are what the servers say."""
        capacities = tuple(server.capacity_tokens for server in self.servers)
        return FleetSpec(len(capacities), capacities, self.workload.page_size, self.workload.forest)

    def run_to_decision(self) -> Decision | None:
        """Wait until a request needs a worker; None when every request has ended.

        Raises:
            BackendError: a server wants another API key or is no SGLang server.
        """
        if self._start_s < 0:
            self._begin()
        while self._pending < 0:
            self._take_answers(0.0)
            if self._due and self._due[0][0] <= self._now_s() and self._someone_up():
                _, self._pending = heapq.heappop(self._due)
                self._ledger.enter(self._pending, self._now_s())
                break
            if not self._due and not self._ledger.inflight[0].any():
                return None
            self._take_answers(min(TICK_S, max(self._due[0][0] - self._now_s(), 0.0)) if self._due else TICK_S)
        return self._decision()

    def apply(self, worker: int, delay_s: float = 0.0) -> None:
        """Send the waiting request to `worker`, after `delay_s` wall seconds."""
        r = self._pending
        if r < 0:
            raise SimulationError("no request waits for a route; call run_to_decision() first")
        self._pending = -1
        row = self.workload.requests[r]
        ids = self._ids(r)
        self._ledger.send(r, worker, self._now_s())
        self._known.sent(0, worker, int(row["prompt_node"]), self._now_s())  # with KV events this says nothing
        output = int(row["output_tokens"]) if self.cluster.ignore_eos else int(row["max_new_tokens"])
        sampling = {"temperature": 0, "max_new_tokens": output, "ignore_eos": self.cluster.ignore_eos}
        body = {"input_ids": ids.tolist(), "sampling_params": sampling}
        self._channel.send(r, worker, body, delay_s)

    def progress(self) -> Progress:
        """Return the time and the integrals up to now."""
        return self._ledger.progress(self._now_s())

    def load(self) -> Load:
        """Return what the last polls say that each worker carries."""
        used = self._channel.signals()[2]
        return Load(used / np.array(self.spec.capacity_tokens), np.array(self._ledger.stats()["retractions"]))

    def completions(self) -> np.ndarray:
        """Return RECORD rows that have ended since the last call."""
        return self._ledger.completions()

    def records(self) -> np.ndarray:
        """Return RECORD rows of everything that has ended, in order of completion."""
        return self._ledger.records()

    def prompt(self, request: int) -> np.ndarray:
        """Return the token ids that were sent for `request`, int32 (prompt_tokens,)."""
        return self._bodies[request]

    def output(self, request: int) -> list[int]:
        """Return the token ids that came back for `request`."""
        return self._outputs[request]

    def stats(self) -> dict[str, Any]:
        """Return per-worker lists and totals, named as those of the simulated backend.

        ``busy_s`` is the time with at least one request at the server, ``evicted_tokens`` is read from its metrics.
        """
        evicted = zip(self._channel.evicted_tokens(), self._evicted_before, strict=True)
        return self._ledger.stats() | {"evicted_tokens": [max(after - before, 0) for after, before in evicted]}

    def snapshot(self, node: int) -> Snapshot:
        """Return what the last polls say of the fleet; what is cached of which prefix, servers do not tell."""
        running, queued, used, _, _ = self._channel.signals()
        return Snapshot(
            requests=len(self.workload.requests),
            routed=int((self._ledger.attempts > 0).sum()),
            inflight=self._ledger.inflight[0].copy(),
            running=running,
            queued=queued,
            kv_used_tokens=used,
            kv_capacity_tokens=np.array(self.spec.capacity_tokens, np.int64),
            resident=np.zeros((0, 3), np.int64),
            prefix=int(prefixes_of(self.workload.forest.nodes, np.array([node]))[0]),
        )

    def fork(self) -> LiveBackend:
        """Refuse.

        Raises:
            SimulationError: always: a running server can't be copied.
        """
        raise SimulationError("a live fleet can't be forked; use backend simulated")

    def close(self) -> None:
        """Cancel what is on its way; servers that kvgym started stay up until the process ends."""
        self._channel.close()
        if self._events:
            self._events.close()

    # -- time ---------------------------------------------------------------------------------------------------------

    def _now_s(self) -> float:
        return time.monotonic() - self._start_s

    def _begin(self) -> None:
        load = self.workload
        first = load.heads if load.clients == 0 else load.heads[: load.clients]
        self._backlog = len(first)
        arrivals = load.requests["arrival_s"][first] / self.live.time_scale
        self._due = sorted(zip(arrivals.tolist(), first.tolist(), strict=True))
        self._start_s = time.monotonic()

    # -- requests -----------------------------------------------------------------------------------------------------

    def _decision(self) -> Decision:
        r = self._pending
        row = self.workload.requests[r]
        running, queued, used, up, incarnation = self._channel.signals()
        self._known.see(incarnation)
        cached = self._cached_tokens(r, incarnation)
        node, most = int(row["prompt_node"]), int(row["prompt_tokens"]) - 1
        page = self.workload.page_size
        capacity = np.array([server.capacity_tokens for server in self.servers], np.int64)
        return Decision(
            time_s=self._now_s(),
            request=r,
            node=node,
            prompt_tokens=int(row["prompt_tokens"]),
            prompt_chars=int(row["prompt_chars"]),
            max_new_tokens=int(row["max_new_tokens"]),
            session=int(row["session"]),
            turn=int(row["turn"]),
            priority=int(row["priority"]),
            tenant=int(row["tenant"]),
            region=int(row["region"]),
            inflight=self._ledger.inflight[0].copy(),
            inflight_tokens=self._ledger.inflight[1].copy(),
            running=running,
            queued=queued,
            kv_used_tokens=used,
            kv_capacity_tokens=capacity,
            mask=up if up.any() else np.ones(len(up), bool),
            hit_tokens=np.minimum(cached, most // page * page),
            incarnation=incarnation,
        )

    def _ids(self, r: int) -> np.ndarray:
        """Return the token ids of a prompt, which stay the same when it is sent again."""
        if r not in self._bodies:
            self._bodies[r] = self._prompts.ids(r)
        return self._bodies[r]

    def _cached_tokens(self, r: int, incarnation: np.ndarray) -> np.ndarray:
        """Return what each worker holds of a prompt, as far as is known: from what was sent, or from KV events."""
        if self._events is None:
            return self._known.match_tokens(0, int(self.workload.requests["prompt_node"][r]))
        self._known.hear(self._events.hear(self._now_s(), incarnation), self._now_s())
        return self._known.match_tokens(0, self._events.forest.insert(self._ids(r)))

    def _someone_up(self) -> bool:
        if any(health.up for health in self._channel.health):
            self._down_s = -1.0
            return True
        if self._down_s < 0:
            self._down_s = self._now_s()
        if self._now_s() - self._down_s > self.live.down_timeout_s:
            while self._due and self._due[0][0] <= self._now_s():
                self._end(heapq.heappop(self._due)[1], FAILED, -1)
        return False

    def _take_answers(self, wait_s: float) -> None:
        """Process the answers that are there; with none, wait for one for at most `wait_s`."""
        try:
            self._take(self._channel.answers.get(timeout=wait_s) if wait_s else self._channel.answers.get_nowait())
            while True:
                self._take(self._channel.answers.get_nowait())
        except queue.Empty:
            return

    def _take(self, message: Answer | int | BaseException) -> None:
        if isinstance(message, BaseException):
            failed = BackendError(f"the live client failed: {type(message).__name__} {message}")
            raise message if isinstance(message, BackendError) else failed
        if isinstance(message, int):
            self._ledger.first_token(message, self._now_s())
            return
        r, worker = message.request, message.worker
        self._ledger.back(r, worker, self._now_s())
        if message.outcome == LOST:
            self._channel.mark_broken(worker)
            logger.warning("request %d, attempt %d: %s", r, self._ledger.attempts[r], message.error)
            if self._ledger.attempts[r] <= self.cluster.retries:
                heapq.heappush(self._due, (self._now_s() + self.cluster.retry_delay_s, r))
                return
        if message.outcome == ANSWERED:
            self._outputs[r] = message.output_ids
            self._prompts.answered(r, self._bodies[r], message.output_ids)
        self._end(r, STATUS[message.outcome], worker, message)

    def _end(self, r: int, status: int, worker: int, answer: Answer | None = None) -> None:
        """Write the record of `r`, and release what waits for it; the later turns of a failed request fail with it."""
        self._ledger.end(r, status, worker, self._now_s(), answer, self._start_s)
        requests = self.workload.requests
        follower = int(requests["next"][r])
        while status == FAILED and follower >= 0:
            self._ledger.end(follower, FAILED, -1, self._now_s())
            follower = int(requests["next"][follower])
        if follower < 0 and self.workload.clients and self._backlog < len(self.workload.heads):
            follower = int(self.workload.heads[self._backlog])
            self._backlog += 1
        if follower >= 0:
            heapq.heappush(self._due, (self._now_s() + float(requests["think_s"][follower]), follower))


def _check_signals(signals: SignalsConfig) -> None:
    told = dataclasses.replace(signals, index_tokens=None, observability=DEFAULT_SIGNALS.observability)
    if told != DEFAULT_SIGNALS or signals.observability == "exact":
        raise ConfigError(
            "backend sglang takes no signals but index_tokens and observability (router or events): one router, "
            "and metrics as old as live.poll_s makes them"
        )


def _labels(servers: Sequence[Server], front: str) -> list[str]:
    labels = [str(server.info.get("weight_version", "")) for server in servers]
    if front and len(set(labels)) < len(labels):
        raise ConfigError(
            "answers through a router name their server by its --weight-version, but these servers share one: "
            f"{', '.join(sorted(set(labels)))}; start each with its own"
        )
    return labels
