"""A process of its own measures the peak memory of one large episode."""

from __future__ import annotations

import resource

from kvgym.backends.simulated import SimulatedBackend
from kvgym.config.cluster import ClusterConfig
from kvgym.workloads.gsp import GSP


def peak_memory_gib(groups: int, prompts_per_group: int, workers: int, rate_rps: float) -> float:
    """Generate a GSP, run it to the end with round robin and LRU, and return the process's peak memory, GiB."""
    workload = GSP(groups=groups, prompts_per_group=prompts_per_group, rate_rps=rate_rps).generate(1)
    backend = SimulatedBackend(workload, ClusterConfig(workers=workers), "lru", seed=0)
    backend.engine.run_rule(0)
    return round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20, 2)
