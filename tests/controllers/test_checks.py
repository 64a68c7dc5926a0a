from __future__ import annotations

import inspect
import math

import pytest

from controllers import checks
from controllers.routing import ROUTING
from kvgym.errors import ConfigError

OPTIONS = [
    (name, parameter.name)
    for name in ROUTING
    for parameter in inspect.signature(ROUTING.load(name)).parameters.values()
]


@pytest.mark.parametrize(("name", "option"), OPTIONS)
def test_controllers__refuse_what_is_no_value_for_an_option(name, option):
    for value in (-1, math.nan, math.inf, -math.inf, 10**400, "0.5", [1], {"x": 1}, True, 1j):
        with pytest.raises(ConfigError, match=option):
            ROUTING.load(name)(**{option: value})


@pytest.mark.parametrize(
    ("name", "values", "message"),
    [
        ("cache_aware", {"cache_threshold": 1.01}, "cache_threshold must be a number >= 0 and <= 1, got 1.01"),
        ("cache_aware_014", {"evict_every_s": 0}, "evict_every_s must be a number > 0, got 0"),
        ("cache_aware_tuned", {"max_tree_chars": 2.5}, "max_tree_chars must be a whole number >= 1, got 2.5"),
        ("lbgr", {"forgetting": 0}, "forgetting must be a number > 0 and <= 1, got 0"),
        ("lbgr", {"rho": 1.5}, "rho must be a number >= 0 and <= 1, got 1.5"),
        ("lbgr_release", {"keep": 33}, "keep must be a number >= 0 and <= 32, got 33"),
        ("lbgr_release", {"tick_s": 1e-9}, "tick_s must be a number >= 1e-06, got 1e-09"),
        ("dynamo", {"temperature": -0.1}, "temperature must be a number >= 0, got -0.1"),
        ("llmd", {"block_tokens": 2**70}, "block_tokens must be a whole number >= 1"),
        ("llmd", {"prefix": 0, "queue": 0}, "one of the weights"),
    ],
)
def test_controllers__say_what_is_allowed(name, values, message):
    with pytest.raises(ConfigError, match=message):
        ROUTING.load(name)(**values)


def test_number__bounds():
    checks.number("x", 0, 0, 1)
    checks.number("x", 1.0, 0, 1)
    with pytest.raises(ConfigError, match=r"x must be a number >= 0 and <= 1e\+12, got 1e\+308"):
        checks.number("x", 1e308, 0)
    with pytest.raises(ConfigError, match="x must be a number > 0 and <= 1, got 0"):
        checks.number("x", 0, 0, 1, open_low=True)


def test_whole__bounds():
    checks.whole("x", 3, 3)
    with pytest.raises(ConfigError, match="x must be a whole number >= 3, got 2"):
        checks.whole("x", 2, 3)
