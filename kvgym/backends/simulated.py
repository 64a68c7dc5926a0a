"""The simulated backend: a cluster config, a workload and an eviction policy on the compiled engine."""

from __future__ import annotations

from typing import Any

import numpy as np

from kvgym.config import ClusterConfig
from kvgym.costs import resolve_cost
from kvgym.seeding import stream_seed
from kvgym.sim.engine import DECIDE, Engine, default_options
from kvgym.tables import table
from kvgym.types import Decision, FleetSpec
from kvgym.workloads.base import Workload


def engine_options(cluster: ClusterConfig) -> np.ndarray:
    """Return the engine's OPTIONS record for a cluster config."""
    options = default_options()
    options["page"], options["chunk"] = cluster.page_size, cluster.chunk_tokens
    options["prefill"], options["max_running"] = cluster.max_prefill_tokens, cluster.max_running
    options["evict_full"], options["ignore_eos"] = cluster.evict_amount == "full", cluster.ignore_eos
    resolve_cost(cluster.cost).write(options)
    for field, value in (("request_s", cluster.request_overhead_s), ("step_s", cluster.step_overhead_s)):
        if value is not None:
            options[field] = value
    return options


class SimulatedBackend:
    """One episode on the compiled engine.

    Args:
        workload: requests over a forest compiled for the cluster's page size.
        cluster: the fleet.
        eviction: name of an eviction policy, or ``module:attr``.
        seed: of the episode; the policy's random streams are drawn from its "engine" stream.
        exact: fill `Decision.hit_tokens` with what each worker's cache really holds.

    Raises:
        UnknownNameError: no such policy or cost preset.
    """

    deterministic = True
    forkable = True

    def __init__(
        self, workload: Workload, cluster: ClusterConfig, eviction: str, seed: int, exact: bool = False
    ) -> None:
        self.workload = workload
        self.cluster = cluster
        self.exact = exact
        self.engine = Engine(
            workload,
            engine_options(cluster),
            np.array(cluster.capacities, np.int64),
            np.array(cluster.speeds),
            table("eviction").load(eviction),
            stream_seed(seed, "engine"),
        )
        self._mask = np.ones(cluster.workers, bool)
        self._mask.flags.writeable = False

    @property
    def spec(self) -> FleetSpec:
        """What a controller is told at reset."""
        capacities = tuple(int(b) for b in self.engine.cache.workers["capacity"])
        return FleetSpec(len(capacities), capacities, self.workload.page_size, self.workload.forest)

    def run_to_decision(self) -> Decision | None:
        """Run until a request needs a worker; None when every request has ended."""
        return self._decision() if self.engine.run() == DECIDE else None

    def _decision(self) -> Decision:
        engine = self.engine
        r, workers = engine.pending, engine.cache.workers
        request = self.workload.requests[r]
        return Decision(
            time_s=engine.now_s,
            request=r,
            node=int(request["prompt_node"]),
            prompt_tokens=int(request["prompt_tokens"]),
            prompt_chars=int(request["prompt_chars"]),
            max_new_tokens=int(request["max_new_tokens"]),
            session=int(request["session"]),
            turn=int(request["turn"]),
            priority=int(request["priority"]),
            inflight=workers["inflight"].astype(np.int64),
            inflight_tokens=workers["inflight_tokens"].copy(),
            running=workers["running"].astype(np.int64),
            queued=workers["queued"].astype(np.int64),
            kv_used_tokens=workers["capacity"] - workers["free"],
            kv_capacity_tokens=workers["capacity"].copy(),
            mask=self._mask,
            hit_tokens=engine.hit_tokens(r) if self.exact else None,
        )

    def apply(self, worker: int) -> None:
        """Send the waiting request to `worker`."""
        self.engine.route(worker)

    def completions(self) -> np.ndarray:
        """Return RECORD rows that have ended since the last call."""
        return self.engine.completions()

    def records(self) -> np.ndarray:
        """Return RECORD rows of everything that has ended, in order of completion."""
        return self.engine.records()

    def stats(self) -> dict[str, Any]:
        """Return per-worker lists (busy_s, evicted_tokens, hit_tokens, prompt_tokens, steps, retractions) and totals.

        Totals: ``makespan_s`` is the time of the last completion, ``makespan_load_s`` the largest busy time.
        """
        workers = self.engine.cache.workers
        names = {"busy_s": "busy_s", "evicted": "evicted_tokens", "hit": "hit_tokens", "prompted": "prompt_tokens"}
        names |= {"steps": "steps", "retractions": "retractions"}
        stats: dict[str, Any] = {name: workers[field].tolist() for field, name in names.items()}
        ended = self.records()["finish_s"]
        stats["makespan_s"] = float(ended[-1]) if len(ended) else 0.0
        stats["makespan_load_s"] = float(workers["busy_s"].max())
        return stats

    def fork(self) -> SimulatedBackend:
        """Return an independent copy at the same point with the same random numbers."""
        twin = object.__new__(SimulatedBackend)
        twin.__dict__.update(self.__dict__)
        twin.engine = self.engine.fork()
        return twin
