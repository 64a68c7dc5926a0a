"""A router keeps an account of each worker in measured seconds: work left, work in flight, the cost of a prompt."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from controllers.accounts.in_flight import InFlight
from kvgym.types import Decision, FleetSpec

_SMOOTHING = 0.1
"""Weight of the newest latency in a worker's moving average."""


class Look(NamedTuple):
    """What a prompt meets at each worker, shape (workers,) each."""

    hit_tokens: np.ndarray  # by the router's index
    miss_s: np.ndarray  # prefill of the uncached tokens alone
    cost_s: np.ndarray  # the whole request


class WorkModel:
    """Prices of a prompt at each worker, the work that is there (`load`), and how it has answered lately.

    A request costs a0 + a_h * h + a_u * u seconds for h cached and u uncached tokens, by an index of the caches' size
    (`cache_model`). The three alphas are measured per worker from first-token times (`service_rate`), so slow, fast and
    unequal workers come out right. Work drains by one second per second.

    The caller asks with `look`, then tells its choice with `send`, and what has ended with `observe`.

    Attributes:
        load: what is in flight.
        answered_s: time of the last answer, float64 (workers,); 0 before the first.
        latency_s: moving average from choice to answer, float64 (workers,); 0 before the first answer.

    Args:
        spec: the fleet.
    """

    def __init__(self, spec: FleetSpec) -> None:
        self.load = InFlight(spec)
        self.answered_s = np.zeros(spec.workers)
        self.latency_s = np.zeros(spec.workers)

    def look(self, decision: Decision) -> Look:
        """Bring the account to the decision's time and price its prompt at each worker."""
        self.load.begin(decision)
        hit = np.minimum(self.load.cache.match_tokens(decision.node), decision.prompt_tokens - 1)
        seconds = self.load.rate.seconds
        miss_s = seconds[:, 2] * (decision.prompt_tokens - hit) / 1000.0
        return Look(hit, miss_s, seconds[:, 0] + seconds[:, 1] * hit / 1000.0 + miss_s)

    def send(self, decision: Decision, worker: int, look: Look) -> None:
        """Note that the request of `decision` goes to `worker`; `look` is what was said of it."""
        hit = int(look.hit_tokens[worker])
        uncached = (decision.prompt_tokens - hit) / 1000.0
        self.load.send(decision, worker, hit / 1000.0, uncached, float(look.cost_s[worker]))

    def observe(self, records: np.ndarray) -> None:
        """Take ended requests (RECORD rows) off their workers and learn from those that are done."""
        for sent, finish_s in self.load.observe(records):
            worker = sent.worker
            first = self.answered_s[worker] == 0
            self.answered_s[worker] = max(finish_s, self.answered_s[worker])
            self.latency_s[worker] += (1.0 if first else _SMOOTHING) * (finish_s - sent.time_s - self.latency_s[worker])
