"""The engine is entered here: run to a decision, route, read signals and records, grow.

Importing this module compiles the engine, or loads it from the cache folder; it is imported when an engine is built.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from kvgym.engine.cache.binding import hooks_of
from kvgym.engine.cache.radix import table_add
from kvgym.engine.entry.signatures import RECORDS, SIM_TYPE, on_cache, with_hooks
from kvgym.engine.serving import loop
from kvgym.engine.serving.readings import read_records, read_signals
from kvgym.engine.state import Cache, Sim
from kvgym.jit.door import i64
from kvgym.jit.entry_points import BOOL, FLOAT, INT, INTS, MATRIX, VOID, entry_point


@with_hooks(INT, SIM_TYPE)
def run(c: Cache, x: Sim, bound: Any) -> int:
    """`loop.run`."""
    return loop.run(c, x, hooks_of(bound))


@on_cache(VOID, SIM_TYPE, INT, FLOAT)
def route(c: Cache, x: Sim, w: int, delay_s: float) -> None:
    """`loop.route`."""
    loop.route(c, x, w, delay_s)


@on_cache(INT, SIM_TYPE, BOOL, MATRIX)
def signals(c: Cache, x: Sim, exact: bool, out: np.ndarray) -> int:
    """`readings.read_signals`."""
    return read_signals(c, x, exact, out)


@entry_point(VOID, SIM_TYPE, INT, RECORDS)
def records(x: Sim, first: int, rows: np.ndarray) -> None:
    """`readings.read_records`."""
    read_records(x, first, rows)


@on_cache(VOID, INTS)
def rehash(c: Cache, table: np.ndarray) -> None:
    """Enter every slot of the old `table` into c.table."""
    for i in range(len(table)):
        if table[i] >= 0:
            table_add(c, i64(table[i]))


@on_cache(INT, INT)
def most_slots(c: Cache, w: int) -> int:
    """`loop.most_slots`."""
    return loop.most_slots(c, w)


@on_cache(INT, INT)
def most_logged(c: Cache, w: int) -> int:
    """`loop.most_logged`."""
    return loop.most_logged(c, w)
