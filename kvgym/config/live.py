"""A live fleet as configuration: where its SGLang servers run or how they are started, and how requests reach them."""

from __future__ import annotations

import math
from dataclasses import dataclass

from kvgym.config.options import option
from kvgym.errors import ConfigError


@dataclass(frozen=True)
class LiveConfig:
    """The `live` part of a cluster: used by backend ``sglang`` only; the rest of the cluster says sizes and retries.

    Either `urls` (servers that run already; they are never stopped) or `model` (servers are started, and stopped at the
    end). Started servers get the cluster's page size and eviction policy, and its `capacity_tokens` unless
    `memory_fraction` is given.

    Raises:
        ConfigError: neither or both of urls and model, or a value outside its range.
    """

    urls: tuple[str, ...] = option((), "servers that run already, one per worker: http://host:port")
    model: str = option("", "model folder or name for servers that are to be started")
    devices: tuple[str, ...] = option(("cpu",), "per worker: cpu, or its GPUs as 0 or 0,1; one entry serves for all")
    memory_fraction: float | None = option(None, "SGLang's --mem-fraction-static; none: the pool is capacity_tokens")
    flags: tuple[str, ...] = option((), "further flags of sglang.launch_server, for every worker")
    kv_events: bool = option(False, "started servers publish KV events, for signals.observability: events")
    python: str = option("", "interpreter that has SGLang; none: $KVGYM_LIVE_PYTHON, else this one")
    host: str = option("127.0.0.1", "address that started servers listen on")
    api_key_variable: str = option("", "environment variable with the API key of the servers")
    verify_tls: bool = option(True, "check the certificates of https servers")
    vocab_size: int = option(0, "of the model; 0: as its config.json says")
    time_scale: float = option(1.0, "workload seconds per wall second: 2 sends open-loop requests twice as fast")
    connections: int = option(0, "most connections to one server; 0: no limit")
    connect_timeout_s: float = option(5.0, "until a connection must stand", "s")
    stall_timeout_s: float = option(120.0, "longest silence of a running answer before it counts as lost", "s")
    poll_s: float = option(0.25, "period of health and load polls", "s")
    poll_timeout_s: float = option(2.0, "a poll without an answer for so long counts as failed", "s")
    start_timeout_s: float = option(600.0, "until a started server must be healthy", "s")
    down_timeout_s: float = option(60.0, "how long requests wait when no worker is up, before they end as failed", "s")

    def __post_init__(self) -> None:
        if bool(self.urls) == bool(self.model):
            raise ConfigError("live must name either urls (running servers) or model (servers to start), not both")
        for url in self.urls:
            if not url.startswith(("http://", "https://")):
                raise ConfigError(f"live.urls must start with http:// or https://, got {url!r}")
        if not self.devices:
            raise ConfigError("live.devices must name at least one device, as cpu or 0")
        for name in ("time_scale", "connect_timeout_s", "stall_timeout_s", "poll_s", "poll_timeout_s"):
            if not 0 < getattr(self, name) < math.inf:
                raise ConfigError(f"live.{name} must be above 0, got {getattr(self, name)}")
        for name in ("connections", "start_timeout_s", "down_timeout_s"):
            if not 0 <= getattr(self, name) < math.inf:
                raise ConfigError(f"live.{name} must not be negative, got {getattr(self, name)}")
        if self.memory_fraction is not None and not 0 < self.memory_fraction < 1:
            raise ConfigError(f"live.memory_fraction must be between 0 and 1, got {self.memory_fraction}")
