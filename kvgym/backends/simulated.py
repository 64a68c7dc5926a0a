"""The simulated backend runs a workload on a cluster with an eviction policy, on the compiled engine."""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING, Any

import numpy as np

from kvgym.backends.base import Load, Progress, Snapshot
from kvgym.config.cluster import MOST_TOKENS, ClusterConfig
from kvgym.config.engines import check_eviction
from kvgym.config.signals import DEFAULT_SIGNALS, SignalsConfig
from kvgym.costs import step_costs
from kvgym.engine.engine import Engine, default_options
from kvgym.engine.occupancy import prefixes_of, resident
from kvgym.engine.serving.changes import fleet_changes
from kvgym.engine.serving.readings import HIT
from kvgym.engine.state import DECIDE
from kvgym.knowledge.view import CacheKnowledge, routers_of
from kvgym.seeding import stream_seed
from kvgym.types import REQUEST, Decision, FleetSpec
from kvgym.workloads.base import Workload
from kvgym.workloads.building.regions import with_regions

if TYPE_CHECKING:
    from kvgym.engine.entry.episodes import Episode

_VISIBLE = "prompt_node prompt_tokens prompt_chars max_new_tokens session turn priority tenant region"
_visible = operator.itemgetter(*((REQUEST.names or ()).index(name) for name in _VISIBLE.split()))
"""Picks these fields from a REQUEST row that was made a tuple: ten times as fast as reading them one by one."""

_COSTS = ("p0", "p_tok", "p_quad", "p_kv", "d0", "d_seq", "d_kvtok", "mix_kvtok", "step_s", "request_s")
"""Fields of OPTIONS in the order of `StepCosts`."""


def engine_options(cluster: ClusterConfig, signals: SignalsConfig = DEFAULT_SIGNALS) -> np.ndarray:
    """Return the engine's OPTIONS record for a cluster config and what routers see of it."""
    options = default_options()
    options["log"] = signals.observability == "events"
    options["scrape_s"] = signals.scrape_s if signals.metrics else 0.0
    options["scrape_delay_s"], options["scrape_loss"] = signals.scrape_delay_s, signals.scrape_loss
    options["page"], options["chunk"] = cluster.page_size, cluster.chunk_tokens
    options["prefill"], options["max_running"] = cluster.max_prefill_tokens, cluster.max_running
    options["long_prefill"] = cluster.long_prefill_tokens
    if cluster.one_at_a_time:
        options["chunk"], options["prefill"], options["max_running"] = MOST_TOKENS, MOST_TOKENS, 1
    options["ignore_eos"] = cluster.ignore_eos
    for field, seconds in zip(_COSTS, step_costs(cluster), strict=True):
        options[field] = seconds
    options["retries"], options["retry_s"] = cluster.retries, cluster.retry_delay_s
    return options


class SimulatedBackend:
    """One episode on the compiled engine.

    Args:
        workload: requests over a forest compiled for the cluster's page size.
        cluster: the fleet.
        eviction: name of an eviction policy, or ``module:attr``.
        seed: of the episode; streams: "engine" for the policy, "scrapes" and "events" for what gets lost.
        signals: what the routers see of the fleet (see `kvgym.types.Decision`), and how many routers there are.
        oracle: whether an eviction policy that sees the future may run.

    Raises:
        UnknownNameError: no such policy or cost preset.
        ConfigError: the policy sees the future, and that is not allowed or not possible here; or no worker's engine
            takes a policy.
    """

    deterministic = True
    forkable = True

    def __init__(
        self,
        workload: Workload,
        cluster: ClusterConfig,
        eviction: str,
        seed: int,
        signals: SignalsConfig = DEFAULT_SIGNALS,
        oracle: bool = False,
    ) -> None:
        check_eviction(cluster.engines, eviction)
        workload = with_regions(workload, cluster.regions, seed)
        self.workload = workload
        self.cluster = cluster
        self._network_s = np.array(cluster.network_delays_s)
        self._network_s.flags.writeable = False
        self.signals = signals
        self._router_of = routers_of(workload, signals)
        self.engine = Engine(
            workload,
            engine_options(cluster, signals),
            np.array(cluster.capacities, np.int64),
            np.array(cluster.speeds),
            eviction,
            stream_seed(seed, "engine"),
            fleet_changes(cluster.schedule, cluster.detect_s),
            self._network_s if len(self._network_s) else None,
            self._router_of,
            stream_seed(seed, "scrapes"),
            oracle,
            cluster.engines,
        )
        self.exact = signals.observability == "exact"
        self._known = None if self.exact else CacheKnowledge(signals, workload.forest, cluster.capacities, seed)
        self._mask = np.ones(cluster.workers, bool)
        self._mask.flags.writeable = False
        # None: nothing fails, so nothing is looked up
        self._incarnation = np.zeros(cluster.workers, np.int64) if cluster.schedule else None

    @property
    def batchable(self) -> bool:
        """Whether `kvgym.backends.batch` can step this one together with others.

        It covers fleets that stay as they are, with metrics, one router, and no KV events.
        """
        signals = self.signals
        simple = signals.metrics and signals.routers == 1 and signals.observability != "events"
        return simple and not self.cluster.schedule

    @property
    def spec(self) -> FleetSpec:
        """What a controller is told at reset."""
        capacities = tuple(int(b) for b in self.engine.cache.workers["capacity"])
        delays = self.cluster.network_delays_s
        return FleetSpec(len(capacities), capacities, self.workload.page_size, self.workload.forest, delays)

    def run_to_decision(self) -> Decision | None:
        """Run until a request needs a worker; None when every request has ended."""
        return self._decision() if self.engine.run() == DECIDE else None

    def _decision(self) -> Decision:
        engine, known = self.engine, self._known
        r, now_s = engine.pending, engine.now_s
        router = int(self._router_of[r])
        if self._incarnation is not None:
            self._look_at_fleet()
        signals, most = engine.signals(exact=known is None)
        node, prompt_tokens, prompt_chars, asked, session, turn, priority, tenant, region = _visible(
            self.workload.requests[r].item()
        )
        inflight, inflight_tokens, running, queued, used, capacity = signals[:HIT]
        if known is None:
            hit = signals[HIT]
        else:
            if self.signals.observability == "events":
                known.hear(engine.events(), now_s)
            hit = np.minimum(known.match_tokens(router, node), most)
        metrics = self.signals.metrics
        return Decision(
            time_s=now_s,
            request=r,
            node=node,
            prompt_tokens=prompt_tokens,
            prompt_chars=prompt_chars,
            max_new_tokens=asked,
            session=session,
            turn=turn,
            priority=priority,
            tenant=tenant,
            region=region,
            inflight=inflight,
            inflight_tokens=inflight_tokens,
            running=running if metrics else None,
            queued=queued if metrics else None,
            kv_used_tokens=used if metrics else None,
            kv_capacity_tokens=capacity,
            mask=self._mask,
            router=router,
            hit_tokens=hit,
            incarnation=self._incarnation,
            network_s=self._network_s[min(region, len(self._network_s) - 1)] if len(self._network_s) else None,
        )

    def _look_at_fleet(self) -> None:
        """Bring mask and incarnations up to date, in new arrays; what is known of restarted workers goes."""
        workers = self.engine.cache.workers
        self._mask, self._incarnation = workers["visible"] == 1, np.array(workers["incarnation"])
        self._mask.flags.writeable = self._incarnation.flags.writeable = False
        if self._known is not None:
            self._known.see(self._incarnation)

    def held(self, decision: Decision) -> np.ndarray:
        """Return how many tokens of the waiting prompt each worker really holds, int64 (workers,)."""
        if self.exact and decision.hit_tokens is not None:
            return decision.hit_tokens
        return self.engine.signals(exact=True)[0][HIT]

    def delay_s(self, records: np.ndarray) -> np.ndarray:
        """Return the seconds from the worker of each RECORD row to its client, float64 (rows,)."""
        if not len(self._network_s):
            return np.zeros(len(records))
        regions = np.minimum(self.workload.requests["region"][records["request"]], len(self._network_s) - 1)
        return np.where(records["worker"] >= 0, self._network_s[regions, records["worker"]], 0.0)

    def apply(self, worker: int, delay_s: float = 0.0) -> None:
        """Send the waiting request to `worker`, whose queue it reaches `delay_s` later than without."""
        engine = self.engine
        r = engine.pending
        engine.route(worker, delay_s)
        if self._known is not None:
            node = int(self.workload.requests["prompt_node"][r])
            self._known.sent(int(self._router_of[r]), worker, node, engine.now_s)

    def progress(self) -> Progress:
        """Return the time and the integrals up to now."""
        clock = self.engine.cache.clock
        names = ("now_s", "area_s", "ttft_area_s", "busiest_s", "heaviest_s")
        return Progress(*(float(clock[name][0]) for name in names))

    def load(self) -> Load:
        """Return what each worker carries now."""
        workers = self.engine.cache.workers
        return Load(1.0 - workers["free"] / workers["capacity"], workers["retractions"].copy())

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

    def snapshot(self, node: int) -> Snapshot:
        """Return what the fleet looks like now, and the top-level prefix of forest node `node`."""
        cache = self.engine.cache
        workers, clock = cache.workers, cache.clock
        return Snapshot(
            requests=len(self.workload.requests),
            routed=int(clock["in_system"][0] + clock["done"][0]) - int(self.engine.pending >= 0),
            inflight=workers["inflight"].copy(),
            running=workers["running"].copy(),
            queued=workers["queued"].copy(),
            kv_used_tokens=workers["capacity"] - workers["free"],
            kv_capacity_tokens=workers["capacity"].copy(),
            resident=resident(cache),
            prefix=int(prefixes_of(cache.nodes, np.array([node]))[0]),
        )

    def episode(self) -> Episode:
        """Return all arrays of this episode, for `kvgym.engine.entry.episodes`; they are replaced when they grow."""
        from kvgym.engine.entry.episodes import NO_MEMORY, Episode, Memory

        memory = NO_MEMORY if self._known is None else Memory(self._known.only.tags, self._known.only.limits)
        return Episode(self.engine.cache, self.engine.sim, memory)

    def grow_memory(self) -> None:
        """Make room for one more prompt in the router's memory."""
        if self._known is not None:
            self._known.only.reserve(int(self.workload.forest.nodes["level"].max()))

    def close(self) -> None:
        """Nothing to give up."""

    def fork(self) -> SimulatedBackend:
        """Return an independent copy at the same point with the same random numbers."""
        twin = object.__new__(type(self))
        twin.__dict__.update(self.__dict__)
        twin.engine = self.engine.fork()
        twin._known = None if self._known is None else self._known.fork()
        return twin
