from __future__ import annotations

import re

import pytest

from kvgym.config.options import to_plain
from kvgym.config.signals import DEFAULT_SIGNALS, SignalsConfig, resolve_signals
from kvgym.errors import ConfigError


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        (
            {"observability": "event"},
            "observability must be one of router, events, exact, got 'event'; did you mean 'ev",
        ),
        ({"router_by": "sesion"}, "router_by must be one of session, request, got 'sesion'; did you mean 'session'?"),
        ({"scrape_s": -1.0}, "scrape_s must be a number >= 0, got -1.0"),
        ({"scrape_s": 1e-6}, "scrape_s must be 0 (always fresh) or at least 0.001, got 1e-06"),
        ({"scrape_delay_s": 1.0}, "scrape_delay_s and scrape_loss need scrapes; set scrape_s to their period"),
        ({"scrape_s": 0.001, "scrape_delay_s": 10.1}, "scrape_delay_s must be at most 10,000 periods"),
        ({"scrape_s": 1.0, "scrape_loss": 1.5}, "scrape_loss must be a number >= 0 and <= 1, got 1.5"),
        ({"event_loss": 0.1}, "event_delay_s and event_loss need observability: events, got router"),
        ({"index_tokens": 0}, "index_tokens must be a whole number >= 1, got 0"),
        ({"routers": 0}, "routers must be a whole number >= 1 and <= 1,000, got 0"),
        ({"routers": 2.5}, "signals.routers must be a whole number"),
        ({"scrape": 1}, "unknown key 'scrape' in signals; did you mean 'scrape_s'?"),
        ({"metrics": 1}, "signals.metrics must be true or false"),
        ([1], "signals must be a map of fields, got a list"),
    ],
)
def test_signals__hard_input(fields, message):
    with pytest.raises(ConfigError, match=re.escape(message)):
        resolve_signals(fields)


def test_resolve__map_object_or_nothing():
    assert resolve_signals(None) == resolve_signals({}) == DEFAULT_SIGNALS == SignalsConfig()
    some = SignalsConfig("exact", routers=3)
    assert resolve_signals(some) is some
    assert resolve_signals(to_plain(some)) == some


def test_resolve__observability_may_stand_beside():
    assert resolve_signals({"routers": 2}, "exact") == SignalsConfig("exact", routers=2)
    assert resolve_signals({"observability": "exact"}, "exact") == SignalsConfig("exact")
    with pytest.raises(ConfigError, match=r"observability is 'exact' and signals.observability 'router'; give one"):
        resolve_signals({"observability": "router"}, "exact")
    with pytest.raises(ConfigError, match="did you mean 'exact'"):
        resolve_signals({}, "exakt")
    with pytest.raises(ConfigError, match="event_loss need observability: events, got router"):
        resolve_signals({"event_delay_s": 2.0})
    assert resolve_signals({"event_delay_s": 2.0}, "events").event_delay_s == 2.0
