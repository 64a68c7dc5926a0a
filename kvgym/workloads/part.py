"""A part of another workload's sessions is served: one to tune on, another one to judge by."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any

import numpy as np

from kvgym.config.loader import resolve_workload
from kvgym.config.options import check_options, option
from kvgym.errors import ConfigError, WorkloadError
from kvgym.workloads.base import Workload


@dataclass(frozen=True)
class Part:
    """Sessions are dealt to parts by a hash of their numbers, so that no pattern of the workload shows in a part.

    All parts together are the workload. Arrivals come `parts` times as fast where `keep_rate` says so: the fleet then
    carries the load that the whole workload would bring.
    """

    of: Any = option("gsp_default", "the workload: a preset's name, a file, or a map")
    parts: int = option(2, "how many parts the sessions are dealt to", low=1, high=1000)
    part: int = option(0, "which part, 0 to parts - 1", low=0)
    keep_rate: bool = option(True, "arrivals come as often as in the whole workload")

    def __post_init__(self) -> None:
        check_options(self, WorkloadError)
        if self.part >= self.parts:
            raise WorkloadError(f"part: part must be below parts ({self.parts}), got {self.part}")
        if not isinstance(self.of, str | dict):
            raise ConfigError(f"part: of must be a preset's name, a file, or a map, got {self.of!r}")
        resolve_workload(self.of)

    def generate(self, seed: int, page_size: int = 1) -> Workload:
        """Return the part's requests of the workload that `seed` gives.

        Raises:
            WorkloadError: no session falls into the part.
        """
        whole: Workload = resolve_workload(self.of).generate(seed, page_size)
        kept = np.flatnonzero(_dealt(whole.requests["session"], self.parts) == self.part)
        if not len(kept):
            raise WorkloadError(f"part: none of the workload's sessions falls into part {self.part} of {self.parts}")
        number = np.full(len(whole.requests) + 1, -1, np.int32)
        number[kept] = np.arange(len(kept), dtype=np.int32)
        requests = whole.requests[kept].copy()
        requests["next"] = number[requests["next"]]
        if self.keep_rate:
            requests["arrival_s"] /= self.parts
        heads = number[whole.heads]
        notes = {**whole.notes, "part": f"{self.part} of {self.parts}"}
        return dataclasses.replace(whole, requests=requests, heads=heads[heads >= 0], notes=notes)


def _dealt(sessions: np.ndarray, parts: int) -> np.ndarray:
    mixed = (sessions.astype(np.uint64) + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
    mixed ^= mixed >> np.uint64(29)
    mixed *= np.uint64(0xBF58476D1CE4E5B9)
    return ((mixed >> np.uint64(33)) % np.uint64(parts)).astype(np.int64)
