"""Entry points take a cache, or a cache and a policy's hooks in `binding`'s form."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from kvgym.engine.cache.binding import BINDING_TYPE
from kvgym.engine.cache.policy import CACHE_TYPE
from kvgym.engine.state import CHANGE, EVENT, LIVE, Sim
from kvgym.jit.door import record_zeros
from kvgym.jit.entry_points import entry_point, records_type, type_of
from kvgym.types import RECORD, REQUEST

RECORDS = records_type(RECORD)


def example_sim() -> Sim:
    """Return a `Sim` of the shapes that the signatures are made from."""
    ids, counts = np.zeros(1, np.int32), np.zeros((1, 2, 1), np.int64)
    live, ring, changes = record_zeros(1, LIVE), record_zeros(2, EVENT), record_zeros(1, CHANGE)
    requests, network = record_zeros(1, REQUEST), np.zeros((1, 1))
    return Sim(
        requests, live, ids, ids, ids, ids, ring, changes, network, counts, counts, np.zeros((1, 1), np.int32), ids
    )


SIM_TYPE = type_of(example_sim())


def on_cache(result: Any, *arguments: Any) -> Callable[[Callable[..., Any]], Any]:
    """`entry_point` of a function whose first argument is the `Cache`."""
    return entry_point(result, CACHE_TYPE, *arguments)


def with_hooks(result: Any, *arguments: Any) -> Callable[[Callable[..., Any]], Any]:
    """`entry_point` of a function whose first argument is the `Cache` and whose last one is a binding of hooks."""
    return entry_point(result, CACHE_TYPE, *arguments, BINDING_TYPE)
