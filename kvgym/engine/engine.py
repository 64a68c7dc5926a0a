"""An engine holds one simulated episode for Python: build, run to a decision, route, fork, pickle, read results."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Sequence
from typing import Any

import numpy as np

from kvgym.config.engines import EngineRules
from kvgym.config.names import table
from kvgym.engine.cache.binding import bind
from kvgym.engine.cache.policy import Policy, write_constants
from kvgym.engine.growth import grow
from kvgym.engine.serving.readings import SIGNALS
from kvgym.engine.serving.scrape import on_the_way
from kvgym.engine.state import BROKEN, CHANGE, DOWN, EVENT, GROW, LIVE, OPTIONS, START, Sim, new_cache, with_blocks
from kvgym.errors import ConfigError, SimulationError
from kvgym.jit.door import as_records, record_zeros
from kvgym.jit.storage import announced
from kvgym.types import RECORD
from kvgym.workloads.base import Workload

RING_EVENTS = 1000
"""Events kept by the ring buffer of `KVGYM_CHECK=1`."""


def load_entry() -> Any:
    """Import the compiled entry points; an import that has to compile some says so on stderr, once."""
    with announced("kvgym: compiling the simulator (what is new of it, under a minute) ..."):
        from kvgym.engine.entry import entry

    return entry


class Engine:
    """One episode of a simulated fleet.

    Args:
        workload: requests over one forest; its page size is the fleet's.
        options: one OPTIONS record (see `kvgym.backends.simulated` for how a cluster config becomes one).
        capacities: KV pool tokens per worker, shape (workers,).
        speeds: speed factor per worker, shape (workers,).
        policy: the eviction policy, by name or ``module:attr`` (then a pickle names it), or itself.
        seed: of the policies' random streams.
        changes: CHANGE records in the order in which they happen (`kvgym.engine.serving.changes`); none: nothing fails.
        network_s: seconds one way, shape (regions, workers); none: no delay.
        router_of: which router sends each request, 0, 1, ..., shape (requests,); None: there is one.
        scrape_seed: of the stream that loses scrapes.
        oracle: whether a policy that sees the future may be used.
        engines: scheduler rules of each worker, shape (workers,); none: SGLang 0.5.23's.

    Raises:
        ConfigError: no such policy, or one that sees the future where that is not allowed or not possible.
    """

    def __init__(
        self,
        workload: Workload,
        options: np.ndarray,
        capacities: np.ndarray,
        speeds: np.ndarray,
        policy: Policy | str,
        seed: int,
        changes: np.ndarray | None = None,
        network_s: np.ndarray | None = None,
        router_of: np.ndarray | None = None,
        scrape_seed: int = 0,
        oracle: bool = False,
        engines: Sequence[EngineRules] = (),
    ) -> None:
        self._entry = load_entry()
        self.workload = workload
        self.policy_name = policy if isinstance(policy, str) else ""
        self.policy: Policy = table("eviction").load(policy) if isinstance(policy, str) else policy
        if not isinstance(self.policy, Policy):
            raise ConfigError(
                f"eviction policy {policy!r} must be a kvgym.engine.cache.policy.Policy, got {self.policy!r}"
            )
        self.bound = bind(self.policy)
        if options["page"][0] != workload.page_size:
            raise SimulationError(
                f"the cluster's page size is {options['page'][0]}, the workload's forest has {workload.page_size}"
            )
        pool = np.asarray(capacities, np.int64) // workload.page_size * workload.page_size
        nodes = as_records(np.ascontiguousarray(workload.forest.nodes))
        if self.policy.oracle:
            from kvgym.engine.future import future_uses

            future = future_uses(workload, pool, changes, network_s, oracle)
            self.cache = new_cache(nodes, pool, options, seed, memory=len(future))
            self.cache.memory[0] = future
        else:
            self.cache = new_cache(nodes, pool, options, seed, memory=self.policy.memory)
            write_constants(self.cache, self.policy)
        self.cache.workers["speed"] = speeds
        self._set_engines(engines)
        if options["scrape_s"][0] > 0:
            self.cache.clock["scrapes"], self.cache.clock["scrape_due_s"] = 1, options["scrape_s"]
            self.cache.clock["scrape_word"] = scrape_seed | 1
        self.sim = self._new_sim(
            record_zeros(0, CHANGE) if changes is None else as_records(changes),
            network_s,
            np.zeros(len(workload.requests), np.int32) if router_of is None else router_of,
        )
        self._start_fleet()
        self.seen = 0

    def _set_engines(self, engines: Sequence[EngineRules]) -> None:
        for worker, rules in enumerate(engines):
            for name, value in dataclasses.asdict(rules).items():
                self.cache.workers[name][worker] = value
        blocked = self.cache.workers["blocked"] == 1
        if blocked.any():
            self.cache = with_blocks(self.cache, blocked)

    def _start_fleet(self) -> None:
        """Set the clock to the first change of the fleet; a worker that joins later is down."""
        changes, workers, clock = self.sim.changes, self.cache.workers, self.cache.clock
        if len(changes) == 0:
            return
        clock["change_s"] = changes["time_s"][0]
        named, first = np.unique(changes["worker"], return_index=True)
        absent = named[changes["kind"][first] == START]
        workers["phase"][absent], workers["visible"][absent] = DOWN, 0
        clock["visible"] -= len(absent)

    def _new_sim(self, changes: np.ndarray, network_s: np.ndarray | None, router_of: np.ndarray) -> Sim:
        load, n, workers = self.workload, len(self.workload.requests), len(self.cache.workers)
        live = record_zeros(n, LIVE)
        for name in ("enter_s", "admitted_s", "first_s", "finish_s"):
            live[name] = -1.0
        for name in ("worker", "next", "prev", "slot", "row"):
            live[name] = -1
        live["release_s"] = live["due_s"] = load.requests["arrival_s"]
        live["router"] = router_of
        network = np.zeros((0, 0)) if network_s is None else np.ascontiguousarray(network_s, np.float64)
        regions = load.requests["region"]
        if len(network) > 1 and not 0 <= regions.min() <= regions.max() < len(network):
            raise SimulationError(
                f"the workload has requests from region {regions.max()}, the cluster's network_s names "
                f"{len(network)} regions (0 to {len(network) - 1})"
            )
        first = load.heads if load.clients == 0 else load.heads[: load.clients]
        order = np.lexsort((first, load.requests["arrival_s"][first]))
        self.cache.options["clients"] = load.clients
        self.cache.clock["backlog"] = len(first)
        rows, longest = self._block_rows()
        self.cache.clock["free_rows"] = rows
        scrape_s, delay_s = (float(self.cache.options[name][0]) for name in ("scrape_s", "scrape_delay_s"))
        return Sim(
            requests=as_records(np.ascontiguousarray(load.requests)),
            live=live,
            arrivals=np.ascontiguousarray(first[order], np.int32),
            heads=np.ascontiguousarray(load.heads, np.int32),
            heap=np.zeros(n + 1, np.int32),
            done=np.zeros(n, np.int32),
            ring=record_zeros(RING_EVENTS + 1 if self.cache.options["check"][0] else 2, EVENT),
            changes=changes,
            network=network,
            sent=np.zeros((int(router_of.max()) + 1, 2, workers), np.int64),
            scrapes=np.zeros((on_the_way(scrape_s, delay_s) if scrape_s > 0 else 1, 3, workers), np.int64),
            tables=np.zeros((rows, longest), np.int32),
            rows=np.arange(rows, dtype=np.int32),
        )

    def _block_rows(self) -> tuple[int, int]:
        """Return how many requests can run on vLLM workers at once, and the blocks of the longest one."""
        requests, count = self.workload.requests, int(self.cache.workers["blocked"].sum())
        longest = int((requests["prompt_tokens"] + requests["max_new_tokens"]).max(initial=0))
        pool = int(self.cache.workers["capacity"].max())
        rows = min(len(requests), count * int(self.cache.options["max_running"][0]))
        return rows, min(longest, pool) // self.workload.page_size + 1 if rows else 0

    @property
    def pending(self) -> int:
        """Request that waits for a route, or -1."""
        return int(self.cache.clock["pending"][0])

    @property
    def ended(self) -> int:
        """Number of requests that have ended."""
        return int(self.cache.clock["done"][0])

    @property
    def now_s(self) -> float:
        """Simulated time."""
        return float(self.cache.clock["now_s"][0])

    def run(self) -> int:
        """Run to the next decision; return FINISHED, DECIDE or EVICT."""
        return self._drive(lambda: self._entry.run(self.cache, self.sim, self.bound))

    def run_rule(self, rule: int) -> int:
        """Run to the end with a compiled routing rule: 0 round robin, 1 least in flight."""
        from kvgym.engine.entry.entry_rule import run_rule

        return self._drive(lambda: run_rule(self.cache, self.sim, rule, self.bound))

    def _drive(self, call: Any) -> int:
        while True:
            code = int(call())
            if code == GROW:
                self.cache = grow(self.cache)
            elif code == BROKEN:
                raise SimulationError(self.post_mortem())
            else:
                return code

    def route(self, worker: int, delay_s: float = 0.0) -> None:
        """Send the pending request to `worker`, whose queue it reaches `delay_s` (>= 0) later than without."""
        if self.pending < 0:
            raise SimulationError("no request waits for a route; call run() first")
        if (
            isinstance(worker, bool)
            or not isinstance(worker, int | np.integer)
            or not 0 <= worker < len(self.cache.workers)
        ):
            raise SimulationError(f"worker must be a whole number 0..{len(self.cache.workers) - 1}, got {worker!r}")
        if not self.cache.workers["visible"][worker]:
            up = np.flatnonzero(self.cache.workers["visible"]).tolist()
            raise SimulationError(f"worker {worker} is down; choose one that Decision.mask allows: {up}")
        if not 0.0 <= delay_s < np.inf:
            raise SimulationError(f"delay_s must be a finite number >= 0, got {delay_s}")
        self._entry.route(self.cache, self.sim, worker, delay_s)

    def serve_eviction(self) -> int:
        """With ``pause_evict``: let the policy serve the eviction that `run` stopped at; return the tokens freed."""
        from kvgym.engine.entry.entry_cache import serve_eviction

        worker = int(self.cache.clock["evict_worker"][0])
        if worker < 0:
            raise SimulationError("no worker waits for an eviction; call run() first")
        return int(serve_eviction(self.cache, worker, self.bound))

    def fork(self) -> Engine:
        """Return an independent copy at the same point; the same actions give the same future."""
        twin = object.__new__(Engine)
        twin.__dict__.update(self.__dict__)
        shared = {"nodes", "options", "requests", "arrivals", "heads", "changes", "network"}
        for name in ("cache", "sim"):
            part = getattr(self, name)
            copied = [a if f in shared else a.copy() for f, a in zip(part._fields, part, strict=True)]
            setattr(twin, name, type(part)(*copied))
        return twin

    def __getstate__(self) -> dict[str, Any]:
        """Everything but compiled code; a policy that has a name goes by it, so that nothing is compiled again."""
        state = dict(self.__dict__)
        del state["_entry"], state["bound"]
        if self.policy_name:
            del state["policy"]
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Restore and load the entry points again."""
        self.__dict__.update(state)
        self._entry = load_entry()
        if self.policy_name:
            self.policy = table("eviction").load(self.policy_name)
        self.bound = bind(self.policy)

    def records(self, start: int = 0) -> np.ndarray:
        """Return RECORD rows of the requests that have ended, in order of completion, from number `start` on."""
        rows = np.zeros(max(self.ended - start, 0), RECORD)
        if len(rows):
            self._entry.records(self.sim, start, as_records(rows))
        return rows

    def signals(self, exact: bool) -> tuple[np.ndarray, int]:
        """Return what a router may see of each worker, and how many tokens of the pending prompt a cache can answer.

        The first is int64 (7, workers), rows as named in `kvgym.engine.serving.readings`; row HIT is 0 unless `exact`.
        """
        if self.pending < 0:
            raise SimulationError("no request waits for a route; call run() first")
        out = np.zeros((SIGNALS, len(self.cache.workers)), np.int64)
        return out, self._entry.signals(self.cache, self.sim, exact, out)

    def events(self) -> np.ndarray:
        """Return the KV_EVENT rows logged since the last call, in order (none without the option ``log``)."""
        logged = int(self.cache.clock["logged"][0])
        self.cache.clock["logged"] = 0
        return np.array(self.cache.log[:logged])

    def completions(self) -> np.ndarray:
        """Return the RECORD rows that have ended since the last call."""
        rows = self.records(self.seen)
        self.seen += len(rows)
        return rows

    def post_mortem(self) -> str:
        """Return what is wrong after a run that ended as BROKEN."""
        from kvgym.engine.cache.integrity import RULES, first_broken

        _, rule = first_broken(self.cache)
        worker = int(self.cache.clock["error"][0]) - 1
        what = RULES.get(rule, "the scheduler can't go on: a request that should fit does not")
        message = f"broken invariant on worker {worker} at {self.now_s:.6f} s: {what}"
        if len(self.sim.ring) > 2:
            path = f"kvgym-check-{os.getpid()}.npy"
            np.save(path, np.asarray(self.sim.ring))
            message += f"; the last {RING_EVENTS} events are in {path}"
        return message


def default_options() -> np.ndarray:
    """Return an OPTIONS record with SGLang 0.5.23's scheduler defaults and zero costs."""
    options = record_zeros(1, OPTIONS)
    options["page"], options["chunk"], options["prefill"], options["max_running"] = 1, 8192, 16384, 2048
    options["ignore_eos"], options["retries"], options["retry_s"] = 1, 3, 0.1
    options["check"] = int(os.environ.get("KVGYM_CHECK", "0") == "1")
    return options
