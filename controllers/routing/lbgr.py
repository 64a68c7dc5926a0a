"""LBGR in the paper's form adds estimated cost, decaying load and a learned residual, all in seconds."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from controllers.accounts.bounded_rls import BoundedRLS
from controllers.accounts.in_flight import InFlight
from kvgym.config.options import option
from kvgym.control import RoutingController, least
from kvgym.jit.door import njit
from kvgym.types import Decision, FleetSpec

_VARIANCE = (1.0, 0.01, 0.01, 1.0)
"""Initial variances and bounds of theta: s^2, (s per 1,000 tokens)^2 twice, and a plain number."""


@njit()
def _score(
    hit: np.ndarray, mask: np.ndarray, prompt_tokens: int, seconds: np.ndarray, theta: np.ndarray, work_s: np.ndarray,
    held_s: np.ndarray, inflight: np.ndarray, weights: np.ndarray, phi: np.ndarray, out: np.ndarray,
) -> int:  # fmt: skip
    """Fill `phi` (workers, 4) and the rows of `out` (4, workers): cost, cost + load, predicted latency, score; s.

    Returns:
        The allowed worker of smallest score; -1 if there are several or none.
    """
    keep, trust, miss_price = weights
    mean = inflight.mean()
    best, several = -1, False
    for w in range(len(hit)):
        h = min(hit[w], prompt_tokens - 1) / 1000.0
        u = prompt_tokens / 1000.0 - h
        miss_s = seconds[w, 2] * u
        cost = seconds[w, 0] + seconds[w, 1] * h + miss_s
        # nothing is left of what has been answered: the drained load never exceeds what is in flight
        load = min(work_s[w], held_s[w]) + keep * held_s[w]
        phi[w, 0], phi[w, 1], phi[w, 2], phi[w, 3] = 1.0, h, u, load
        residual = theta[w, 0] + theta[w, 1] * h + theta[w, 2] * u + theta[w, 3] * load
        base = cost + load
        out[0, w], out[1, w], out[2, w] = cost, base, max(0.0, base + residual)
        bounded = min(max(residual, -trust * base), trust * base)
        out[3, w] = base + bounded + miss_price * 0.5 * (inflight[w] + mean) * miss_s
        if mask[w] and (best < 0 or out[3, w] <= out[3, best]):
            several = best >= 0 and out[3, w] == out[3, best]
            best = w
    return -1 if several else best


@dataclass(eq=False)
class LBGR(RoutingController):
    """E_ij = Cost_ij + P_i + theta_i . phi_ij; the smallest E_ij + M_ij wins (M_ij below; ties are drawn at random).

    - Cost_ij = a0 + a_h * h + a_u * u (s): h cached and u uncached prompt tokens by the router's own index, which is
      bounded by the worker's KV capacity (`cache_model`). The three alphas are measured per worker (`service_rate`).
    - P_i (s): Cost of each routed request is added at the decision. With `rho` None it drains linearly, one second per
      second, i.e. at the measured service rate of this worker, since costs are in measured seconds. With `rho` given
      it decays as the paper says, P <- rho * P every `delta_t_s`. Either way it never exceeds the costs still in flight
      (the paper's release on completion), and `keep` times these stays on top until the answers are there.
    - theta_i: bounded recursive least squares with forgetting on E - (Cost + P), phi = (1, h, u, P). In the choice
      the residual counts at most `trust` * (Cost + P), so that a misfit can shift the order but not turn it over.
    - M_ij = `miss_price` * n * a_u * u with n the mean of worker i's and the fleet's average requests in flight: a
      second of prefill makes everybody else at that worker wait too. This is not in the paper, whose estimate
      looks at one request only; 0 switches it off.

    Needs no engine metrics: its own in-flight counts, latencies and first-token times. `predicted_s` is E_ij of the
    last decision with the full residual, seconds. Masks: masked workers are left out.

    A worker that has restarted leaves the index. A request routed again first releases what it held.

    Measured in the simulator by `kvgym compare lbgr_reference` (default GSP, 10 seeds): P50 0.80 times that of
    lbgr_release (95 % interval 0.76 to 0.84), P95 about half; workers of speeds 0.5, 1, 1, 1.5: P50 0.71 times (0.65 to
    0.76), P95 a fifth. With LRU in place of RLT 0.59 and 0.42 times. With `miss_price` 0, the paper's rule alone: 1.27
    and 1.15 times (RLT), so the gain is that price's. Characters do not matter: with every second group in a script of
    a quarter of the characters lbgr chooses the same and lbgr_release gets 1.36 times slower. Not measured: real GPUs.
    Constants were chosen on seeds 100 to 105 of GSP (12, 14 and 24 requests/s, 4 and 128 output tokens, equal and
    unequal workers), ShareGPT and Mooncake's first half. Median error of `predicted_s`: 60 % on the default GSP (means
    agree within 3 %: what makes a request late arrives after it), 20 % with 128 output tokens.

    Being greedy it pays for a second copy of a prefix only where waiting costs more than that. When nearly all prompts
    begin alike and little is in flight, nearly all meet at one worker: on `routing_zoo`'s coding agents 92 % in one of
    ten seeds, with a median 3 % and a P95 6 % above session_affinity's.

    Source: "Randomization Boosts KV Caching, Learning Balances Query Load" (ICLR 2026, arXiv 2601.18999), section 4.2
    as far as it is known; alphas, rho, Delta-t and the features' scaling are not published.
    """

    concentrates = (
        "a second copy of a prefix is paid for only where waiting costs more, so little load meets at one worker"
    )

    miss_price: float = option(1.25, "how much the waiting of others counts, 1 = as much as one's own", low=0)
    keep: float = option(0.25, "part of a request's cost that counts as load until it is answered", low=0)
    trust: float = option(0.5, "bound of the residual in the choice, as a fraction of Cost + P", low=0)
    forgetting: float = option(0.995, "lambda of the recursive least squares for theta", above=0, high=1)
    rho: float | None = option(None, "factor of the exponential decay; none: linear drain", low=0, high=1)
    delta_t_s: float = option(0.02, "period of the exponential decay", "s", low=1e-6)

    def reset(self, spec: FleetSpec, seed: int) -> None:
        """Start with an empty index, no load, no residual and the starting alphas; only ties are random."""
        super().reset(spec, seed)
        self.load = InFlight(spec, self.rho, self.delta_t_s)
        self.residual = BoundedRLS(spec.workers, np.zeros(4), np.array(_VARIANCE), self.forgetting)
        self.predicted_s = -1.0
        self._weights = np.array([self.keep, self.trust, self.miss_price], np.float64)

    def act(self, decision: Decision) -> int:
        """Return the worker of smallest score, reserve its load and remember the prompt there."""
        load = self.load
        load.begin(decision)
        phi, out = np.empty((self.spec.workers, 4)), np.empty((4, self.spec.workers))
        worker = _score(
            load.cache.match_tokens(decision.node), decision.mask, decision.prompt_tokens, load.rate.seconds,
            self.residual.theta, load.work_s, load.held_s, load.inflight, self._weights, phi, out,
        )  # fmt: skip
        if worker < 0:
            best = least(out[3], decision.mask)
            worker = int(best[self.rng.integers(len(best))])
        cost_s, base_s, self.predicted_s, _ = out[:, worker].tolist()
        row = phi[worker]
        _, cached, uncached, _ = row.tolist()
        load.send(decision, worker, cached, uncached, cost_s, (base_s, row))
        return worker

    def observe(self, records: np.ndarray) -> None:
        """Release what the ended requests had reserved; learn from the done ones and refresh their prompts."""
        for sent, finish_s in self.load.observe(records):
            base_s, phi = sent.note
            self.residual.update(sent.worker, phi, finish_s - sent.time_s - base_s)
