"""One entry point runs whole episodes with a compiled routing rule, for benchmarks and tests."""

from __future__ import annotations

from typing import Any

from kvgym.engine.cache.binding import hooks_of
from kvgym.engine.entry.signatures import SIM_TYPE, with_hooks
from kvgym.engine.serving import loop
from kvgym.engine.state import Cache, Sim
from kvgym.jit.entry_points import INT


@with_hooks(INT, SIM_TYPE, INT)
def run_rule(c: Cache, x: Sim, rule: int, bound: Any) -> int:
    """`cluster.run_rule`."""
    return loop.run_rule(c, x, hooks_of(bound), rule)
