"""Sessions draw a client region where a workload does not say where its requests come from."""

from __future__ import annotations

import dataclasses

import numpy as np

from kvgym.seeding import stream
from kvgym.workloads.base import Workload


def with_regions(workload: Workload, regions: int, seed: int) -> Workload:
    """Return the workload with a region 0 .. regions-1 for every session, uniformly drawn from the stream "regions".

    The draw has a stream of its own, so arrivals and prompts are the same with any number of regions. A workload in
    which any request has a region other than 0 says where its requests come from and is returned as it is.

    Args:
        workload: its requests are not changed; the result shares everything else with it.
        regions: number of client regions, at least 1.
        seed: of the episode.
    """
    if regions == 1 or workload.requests["region"].any():
        return workload
    sessions, which = np.unique(workload.requests["session"], return_inverse=True)
    requests = workload.requests.copy()
    requests["region"] = stream(seed, "regions").integers(regions, size=len(sessions))[which]
    return dataclasses.replace(workload, requests=requests)
