"""A workload is requests over one prefix forest, with a rule for how they are released."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from kvgym.errors import WorkloadError
from kvgym.forest.forest import Forest
from kvgym.types import REQUEST

MOST_REQUESTS = 100_000_000
"""Most requests that a generated workload may have: some 20 GB; more is a slip of the pen."""


@dataclass(frozen=True)
class Workload:
    """Requests over one prefix forest.

    Release rules. A request named in `heads` starts a session. Open loop (``clients == 0``): heads are released at
    their own ``arrival_s``. Closed loop (``clients == N``): the first N heads are released at their ``arrival_s``, each
    further head ``think_s`` after some session has ended (first free client, in the order of `heads`). Every other
    request is released ``think_s`` after its predecessor (the request whose ``next`` names it) has finished.

    Attributes:
        name: short name for tables.
        forest: prefix forest compiled for `page_size`.
        requests: REQUEST records, shape (requests,).
        heads: indices of session heads, int32, in release order (open loop: by arrival_s).
        clients: 0 for open loop, else the number of closed-loop clients.
        block_tokens: granularity at which sharing is known (1 = token ids; 512 for Mooncake ...).
        notes: facts for reports (source, what was dropped, seeds).
    """

    name: str
    forest: Forest
    requests: np.ndarray
    heads: np.ndarray
    clients: int = 0
    block_tokens: int = 1
    notes: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.requests.dtype != REQUEST:
            raise WorkloadError(f"requests must have dtype kvgym.types.REQUEST, got {self.requests.dtype}")
        if len(self.requests) == 0:
            raise WorkloadError(f"workload {self.name!r} has no requests")

    @property
    def page_size(self) -> int:
        """Page size that the forest was compiled for."""
        return self.forest.page_size


class WorkloadSource(Protocol):
    """What a workload class offers; its fields are its configuration (see configs/workloads)."""

    def generate(self, seed: int, page_size: int = 1) -> Workload:
        """Return the episode's workload; the same arguments give the same workload."""
        ...
