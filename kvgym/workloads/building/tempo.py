"""The same sessions at another tempo: arrivals come closer together or further apart, all else stays."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

from kvgym.errors import ConfigError
from kvgym.workloads.base import Workload, WorkloadSource


@dataclass(frozen=True)
class Tempo:
    """Another source whose sessions arrive `factor` times as fast, from the same first arrival on.

    Poisson arrivals stay Poisson, a trace keeps its bursts. What users think between two turns is not hurried.
    """

    source: WorkloadSource
    factor: float

    def generate(self, seed: int, page_size: int = 1) -> Workload:
        """Return the source's workload with its arrivals scaled.

        Raises:
            ConfigError: it is a closed loop: its clients wait for answers, so it has no tempo.
        """
        workload = self.source.generate(seed, page_size)
        if workload.clients:
            raise ConfigError(
                f"a closed loop of {workload.clients} clients has no rate; make the workload an open loop"
            )
        requests = workload.requests.copy()
        first_s = requests["arrival_s"][workload.heads].min()
        requests["arrival_s"][workload.heads] = (
            first_s + (requests["arrival_s"][workload.heads] - first_s) / self.factor
        )
        return dataclasses.replace(workload, requests=requests)


def request_rate(workload: Workload) -> float | None:
    """Return the requests per second between the first and the last session's arrival; None: all come at once."""
    arrival_s = workload.requests["arrival_s"][workload.heads]
    span_s = float(arrival_s.max() - arrival_s.min())
    return len(workload.requests) / span_s if span_s > 0 and not workload.clients else None
