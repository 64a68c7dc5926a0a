"""Routers see what signals allow: whose prefixes, how stale metrics and KV events are, how many routers there are."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from kvgym.config.options import build, check_options, option
from kvgym.errors import ConfigError, did_you_mean

OBSERVABILITY = ("router", "events", "exact")
"""What `Decision.hit_tokens` is made from: the router's own memory, KV events, or the workers' real caches."""
ROUTER_BY = ("session", "request")
SHORTEST_SCRAPE_S = 0.001
MOST_SCRAPES, MOST_ROUTERS = 10_000, 1_000
"""Limits of scrapes on their way at one time, and of routers: each is memory of its own."""


@dataclass(frozen=True)
class SignalsConfig:
    """What a router knows of the fleet. Its own counts of requests in flight are always live; all else may be stale.

    Defaults: one router, fresh engine metrics, a memory of the KV capacity's size of what it sent where.

    Raises:
        ConfigError: a value outside its range.
    """

    observability: str = option(
        "router",
        "cached prefixes as the router remembers its own sending (router), by KV events (events), real (exact)",
    )
    scrape_s: float = option(
        0.0, "period of the engines' metrics: running, queued, KV use; 0: always fresh", "s", low=0
    )
    scrape_delay_s: float = option(0.0, "time from a scrape to the routers", "s", low=0)
    scrape_loss: float = option(0.0, "probability that the scrape of one worker is lost", low=0, high=1)
    metrics: bool = option(True, "false: workers report no running, queued and KV use at all")
    event_delay_s: float = option(0.0, "time from a store or removal in a cache to the routers", "s", low=0)
    event_loss: float = option(0.0, "probability that a KV event is lost", low=0, high=1)
    index_tokens: int | None = option(
        None,
        "most tokens per worker in a router's index, oldest leaves go first; none: the KV capacity",
        "tokens",
        low=1,
    )
    routers: int = option(
        1, "number of routers; each counts and remembers only what it sends", low=1, high=MOST_ROUTERS
    )
    router_by: str = option("session", "what is spread over the routers: session or request")

    def __post_init__(self) -> None:
        _one_of("observability", self.observability, OBSERVABILITY)
        _one_of("router_by", self.router_by, ROUTER_BY)
        check_options(self)
        if 0.0 < self.scrape_s < SHORTEST_SCRAPE_S:
            raise ConfigError(f"scrape_s must be 0 (always fresh) or at least {SHORTEST_SCRAPE_S}, got {self.scrape_s}")
        if self.scrape_s == 0.0 and (self.scrape_delay_s > 0.0 or self.scrape_loss > 0.0):
            raise ConfigError("scrape_delay_s and scrape_loss need scrapes; set scrape_s to their period")
        if self.scrape_delay_s > self.scrape_s * MOST_SCRAPES:
            raise ConfigError(
                f"scrape_delay_s must be at most {MOST_SCRAPES:,} periods of scrape_s, got {self.scrape_delay_s}"
            )
        if self.observability != "events" and (self.event_delay_s > 0.0 or self.event_loss > 0.0):
            raise ConfigError(f"event_delay_s and event_loss need observability: events, got {self.observability}")


def _one_of(name: str, value: str, known: tuple[str, ...]) -> None:
    if value not in known:
        hint = did_you_mean(value, known)
        raise ConfigError(f"{name} must be one of {', '.join(known)}, got {value!r}{hint}")


DEFAULT_SIGNALS = SignalsConfig()
"""One router, fresh metrics, its own memory."""


def resolve_signals(given: Mapping[str, Any] | SignalsConfig | None, observability: str = "router") -> SignalsConfig:
    """Return the signals for a map of `SignalsConfig` fields; `observability` is what it is where the map has none.

    Raises:
        ConfigError: an unknown field, a value outside its range, or two different observabilities.
    """
    if isinstance(given, SignalsConfig):
        return given
    data = {} if given is None else given
    if not isinstance(data, Mapping) or observability == "router":
        return build(SignalsConfig, data, "signals")
    inside = data.get("observability", observability)
    if inside != observability:
        raise ConfigError(f"observability is {observability!r} and signals.observability {inside!r}; give one")
    return build(SignalsConfig, {**data, "observability": observability}, "signals")
