"""The entry point that runs whole episodes with a compiled routing rule, for benchmarks and tests."""

from __future__ import annotations

from typing import Any

from kvgym.jit.entry_points import INT
from kvgym.sim import cluster
from kvgym.sim.binding import hooks_of
from kvgym.sim.compiled import SIM_TYPE, with_hooks
from kvgym.sim.state import Cache, Sim


@with_hooks(INT, SIM_TYPE, INT)
def run_rule(c: Cache, x: Sim, rule: int, bound: Any) -> int:
    """`cluster.run_rule`."""
    return cluster.run_rule(c, x, hooks_of(bound), rule)
