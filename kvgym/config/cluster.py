"""A cluster is a fleet of workers as configuration: cache size, scheduler limits and what a step costs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kvgym.config.engines import EngineRules, engine_rules
from kvgym.config.hardware import with_hardware
from kvgym.config.live import LiveConfig
from kvgym.config.loader import load_config, mistakes_in
from kvgym.config.options import build, check_options, option
from kvgym.config.schedule import FleetEvent, check_schedule
from kvgym.errors import ConfigError

MOST_WORKERS, MOST_TOKENS, MOST_SPEED, MOST_DELAY_S = 100_000, 1 << 40, 1e6, 1e6
"""Upper limits of a fleet: far beyond use, but what exceeds them is a slip of the pen."""


@dataclass(frozen=True)
class ClusterConfig:
    """A fleet of workers: cache size, scheduler limits and what a step costs.

    A list for `capacity_tokens`, `speed` or `engine` gives one value per worker. Scheduler defaults are SGLang
    0.5.23's; on vLLM workers `chunk_tokens` is max_num_batched_tokens, `max_running` max_num_seqs, a page is a block.

    A client such as SGLang's bench_serving times the first token when the first *text* comes. A token that shows none
    (a special one, half a character) leaves that to a later one; `late_text_share` is an assumption on how often all
    but the last do. Records then show what the client saw; rewards and the fleet do not change.

    With `one_at_a_time` nothing is batched: a prompt is prefilled in one step however long it is, and the next request
    is admitted when the one before has its answer. The three scheduler limits then have no say and must not be set.

    Failures: what a failed worker had is sent anew by the router, at most `retries` times for each request; after that
    the request ends as FAILED, and so do the later turns of its session. `kvgym.engine.serving.faults` has the details.

    Network: `network_s` is one delay for all, one per worker, or a map region -> one of these. A request travels for
    that long from the router, which is in its client's region, to the worker, and so do its first token and its end
    back. REQUEST.region counts the map's entries; where a workload says nothing, `kvgym.workloads.building.regions`
    draws it.
    """

    workers: int = option(4, "number of workers", low=1, high=MOST_WORKERS)
    capacity_tokens: int | tuple[int, ...] = option(
        196_000, "KV cache of a worker, or one value per worker", "tokens", low=1, high=MOST_TOKENS
    )
    page_size: int = option(1, "KV cache page", "tokens", low=1, high=MOST_TOKENS)
    chunk_tokens: int = option(8192, "longest chunk of a chunked prefill", "tokens", low=1, high=MOST_TOKENS)
    max_prefill_tokens: int = option(16384, "budget of one prefill batch", "tokens", low=1, high=MOST_TOKENS)
    long_prefill_tokens: int = option(
        0, "vLLM: most tokens of one prompt in a step that it shares; 0: all", "tokens", low=0, high=MOST_TOKENS
    )
    max_running: int = option(2048, "largest running batch", "requests", low=1, high=MOST_TOKENS)
    one_at_a_time: bool = option(False, "serve one request at a time, without batches and chunks; simulated only")
    engine: str | tuple[str, ...] = option("sglang-0.5.23", "serving engine of a worker, or one value per worker")
    ignore_eos: bool = option(True, "answers are as long as asked for, and SGLang 0.5.23 reserves them in full")
    cost: str | dict[str, Any] = option("l40-llama31-8b", "cost preset, or the fields of a cost model")
    speed: float | tuple[float, ...] = option(
        1.0, "speed factor of a worker, or one value per worker", low=1 / MOST_SPEED, high=MOST_SPEED
    )
    request_overhead_s: float | None = option(
        None, "constant per request; none: from the cost preset", "s", low=0, high=MOST_DELAY_S
    )
    step_overhead_s: float | None = option(
        None, "constant per engine step; none: from the cost preset", "s", low=0, high=MOST_DELAY_S
    )
    schedule: tuple[FleetEvent, ...] = option((), "list of {time_s, worker, event: join | fail | recover}")
    retries: int = option(3, "most re-sends of a request that was lost with its worker", low=0, high=MOST_DELAY_S)
    retry_delay_s: float = option(
        0.1, "from the loss of a request until it is at the router again", "s", low=0, high=MOST_DELAY_S
    )
    detect_s: float = option(0.0, "how long routers take a failed worker for up", "s", low=0, high=MOST_DELAY_S)
    network_s: float | tuple[float, ...] | dict[str, float | tuple[float, ...]] = option(
        0.0,
        "one way from client to worker: one value, one per worker, or a map region -> one of these",
        "s",
        low=0,
        high=MOST_DELAY_S,
    )
    late_text_share: float = option(
        0.0,
        "share of simulated requests whose first text comes with the last token: clients time TTFT there",
        low=0,
        high=1,
    )
    live: LiveConfig | None = option(None, "where the real servers are, for backend sglang")

    def __post_init__(self) -> None:
        check_options(self)
        for name in ("capacity_tokens", "speed", "engine"):
            value = getattr(self, name)
            if isinstance(value, tuple) and len(value) != self.workers:
                raise ConfigError(f"{name} has {len(value)} values for {self.workers} workers; give one, or one each")
        self._check_engines()
        if min(self.capacities) < self.page_size:
            raise ConfigError(
                f"capacity_tokens must be at least one page ({self.page_size} tokens), got {min(self.capacities)}"
            )
        if self.one_at_a_time:
            self._check_one_at_a_time()
        elif self.chunk_tokens < self.page_size:
            raise ConfigError(
                f"chunk_tokens must be at least one page ({self.page_size} tokens), got {self.chunk_tokens}"
            )
        check_schedule(self.schedule, self.workers)
        self._check_network()

    def _check_engines(self) -> None:
        for name, rules in zip(self.engine_names, self.engines, strict=True):
            if rules.mixed_chunk and not self.one_at_a_time and self.chunk_tokens <= self.max_running:
                raise ConfigError(
                    f"with {name} each running request takes a token of the chunk: chunk_tokens ({self.chunk_tokens}) "
                    f"must exceed max_running ({self.max_running})"
                )
            if rules.blocked and (self.one_at_a_time or self.live):
                what = "one_at_a_time" if self.one_at_a_time else "live"
                raise ConfigError(f"{what} is for SGLang workers, got engine {name}")
        blocked = [rules.blocked for rules in self.engines]
        for name, needed in (("max_prefill_tokens", False), ("long_prefill_tokens", True)):
            if needed not in blocked and getattr(self, name) != getattr(type(self), name):
                whose = "vLLM" if needed else "SGLang"
                raise ConfigError(f"{name} is {whose}'s, and no worker's engine is; got {getattr(self, name)}")

    def _check_one_at_a_time(self) -> None:
        for name in ("chunk_tokens", "max_prefill_tokens", "max_running"):
            if getattr(self, name) != getattr(type(self), name):
                raise ConfigError(
                    f"one_at_a_time serves without {name}, got {getattr(self, name)}; leave {name} out, or set "
                    "one_at_a_time: false"
                )
        if self.live is not None:
            raise ConfigError("one_at_a_time needs a simulated fleet: real servers batch; leave out `live`")

    def _check_network(self) -> None:
        if self.network_s == {}:
            raise ConfigError("network_s must name at least one region")
        for name, value in self._regions.items():
            where = f"network_s.{name}" if isinstance(self.network_s, Mapping) else "network_s"
            if isinstance(value, tuple) and len(value) != self.workers:
                raise ConfigError(f"{where} has {len(value)} values for {self.workers} workers; give one, or one each")
            if not all(0 <= delay_s <= MOST_DELAY_S for delay_s in (value if isinstance(value, tuple) else (value,))):
                raise ConfigError(f"{where} must not be negative and at most {MOST_DELAY_S:g}, got {value}")

    @property
    def _regions(self) -> Mapping[str, float | tuple[float, ...]]:
        return self.network_s if isinstance(self.network_s, Mapping) else {"": self.network_s}

    @property
    def regions(self) -> int:
        """Number of client regions, at least 1."""
        return len(self._regions)

    @property
    def network_delays_s(self) -> tuple[tuple[float, ...], ...]:
        """Seconds one way, shape (regions, workers); empty where there is no delay at all."""
        rows = tuple(v if isinstance(v, tuple) else (v,) * self.workers for v in self._regions.values())
        return rows if any(map(any, rows)) else ()

    @property
    def capacities(self) -> tuple[int, ...]:
        """KV tokens of each worker, shape (workers,)."""
        value = self.capacity_tokens
        return value if isinstance(value, tuple) else (value,) * self.workers

    @property
    def engines(self) -> tuple[EngineRules, ...]:
        """Scheduler rules of each worker's engine, shape (workers,)."""
        return tuple(map(engine_rules, self.engine_names))

    @property
    def engine_names(self) -> tuple[str, ...]:
        """Name of each worker's engine, shape (workers,)."""
        return self.engine if isinstance(self.engine, tuple) else (self.engine,) * self.workers

    @property
    def speeds(self) -> tuple[float, ...]:
        """Speed factor of each worker, shape (workers,)."""
        return self.speed if isinstance(self.speed, tuple) else (self.speed,) * self.workers


def resolve_cluster(given: str | Path | Mapping[str, Any] | ClusterConfig) -> ClusterConfig:
    """Return the cluster for a preset name, a path, a map or a `ClusterConfig`.

    A map may describe its workers by `hardware` (see `kvgym.config.hardware.HardwareConfig`), for example
    ``{workers: 8, hardware: {gpu: h100, model: llama-3.1-70b, tensor_parallel: 4}}``.
    """
    if isinstance(given, ClusterConfig):
        return given
    with mistakes_in(given):
        return build(ClusterConfig, with_hardware(load_config("clusters", given)), "cluster")
