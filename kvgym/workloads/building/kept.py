"""A source keeps what it has generated, for training runs that meet the same seeds again and again."""

from __future__ import annotations

from kvgym.workloads.base import Workload, WorkloadSource


class KeptSource:
    """Another source, each of whose workloads is generated once and kept in memory; no episode writes to a workload.

    Args:
        source: what generates.
    """

    def __init__(self, source: WorkloadSource) -> None:
        self._source = source
        self._kept: dict[tuple[int, int], Workload] = {}

    def generate(self, seed: int, page_size: int = 1) -> Workload:
        """Return the workload of `seed`, compiled for `page_size`."""
        key = seed, page_size
        if key not in self._kept:
            self._kept[key] = self._source.generate(seed, page_size)
        return self._kept[key]
