"""A live fleet is configured by where its servers run or how they start, and by how requests reach them."""

from __future__ import annotations

from dataclasses import dataclass

from kvgym.config.options import check_options, option
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
    memory_fraction: float | None = option(
        None, "SGLang's --mem-fraction-static; none: the pool is capacity_tokens", above=0, high=1
    )
    flags: tuple[str, ...] = option((), "further flags of sglang.launch_server, for every worker")
    kv_events: bool = option(False, "started servers publish KV events, for signals.observability: events")
    python: str = option("", "interpreter that has SGLang; none: $KVGYM_LIVE_PYTHON, else this one")
    host: str = option("127.0.0.1", "address that started servers listen on")
    api_key_variable: str = option("", "environment variable with the API key of the servers")
    verify_tls: bool = option(True, "check the certificates of https servers")
    vocab_size: int = option(0, "of the model; 0: as its config.json says", low=0)
    time_scale: float = option(
        1.0, "workload seconds per wall second: 2 sends open-loop requests twice as fast", above=0
    )
    connections: int = option(0, "most connections to one server; 0: no limit", low=0)
    connect_timeout_s: float = option(5.0, "until a connection must stand", "s", above=0)
    stall_timeout_s: float = option(120.0, "longest silence of a running answer before it counts as lost", "s", above=0)
    poll_s: float = option(0.25, "period of health and load polls", "s", above=0)
    poll_timeout_s: float = option(2.0, "a poll without an answer for so long counts as failed", "s", above=0)
    start_timeout_s: float = option(600.0, "until a started server must be healthy", "s", low=0)
    down_timeout_s: float = option(
        60.0, "how long requests wait when no worker is up, before they end as failed", "s", low=0
    )

    def __post_init__(self) -> None:
        if bool(self.urls) == bool(self.model):
            raise ConfigError("live must name either urls (running servers) or model (servers to start), not both")
        for url in self.urls:
            if not url.startswith(("http://", "https://")):
                raise ConfigError(f"live.urls must start with http:// or https://, got {url!r}")
        if not self.devices:
            raise ConfigError("live.devices must name at least one device, as cpu or 0")
        check_options(self)
