"""Opens a live episode for a cell: servers for its fleet and eviction policy, and a real router if it asks for one."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

from kvgym.backends.sglang import pool
from kvgym.backends.sglang.backend import LiveBackend
from kvgym.backends.sglang.gateway import FrontRouter
from kvgym.harness.compare.cell import Cell
from kvgym.workloads.base import Workload


@contextmanager
def open_live(
    cell: Cell, seed: int, workload: Workload, controller: Any, journal: Path | None = None
) -> Iterator[LiveBackend]:
    """Yield the backend of one live episode; servers stay up for the next one (see `release`).

    Raises:
        BackendError: servers or router cannot be started or reached.
    """
    policy, live = getattr(controller, "front_policy", ""), cell.fleet.live
    assert live is not None, "make_plan has checked that the fleet is live"
    urls = [server.url for server in pool.acquire(cell.fleet, cell.eviction)]
    with FrontRouter(live, urls, policy) if policy else nullcontext() as router:
        front = router.url if router else ""
        backend = LiveBackend(workload, cell.fleet, cell.eviction, seed, cell.signals, front=front, journal=journal)
        try:
            yield backend
        finally:
            backend.close()


def by_servers(tasks: list[tuple[Cell, int]]) -> list[tuple[Cell, int]]:
    """Return live tasks in an order that starts each fleet once."""
    order: dict[tuple[str, str], list[tuple[Cell, int]]] = {}
    for cell, seed in tasks:
        order.setdefault((cell.cluster, cell.eviction), []).append((cell, seed))
    return [task for group in order.values() for task in group]


def release() -> None:
    """Stop the servers that were started."""
    pool.release()
