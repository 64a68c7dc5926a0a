"""LBGR as released adds uncached characters, a fast-decaying load and a learned bias; the smallest sum wins."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from controllers.accounts.text_tree import TextTree
from kvgym.config.options import option
from kvgym.control import RoutingController, allowed_workers
from kvgym.errors import ConfigError
from kvgym.jit.door import njit
from kvgym.types import DONE, Decision, FleetSpec


class _Reservation(NamedTuple):
    """What the router remembers of a request in flight."""

    worker: int
    node: int
    time_s: float
    base_ms: float
    load_ms: int  # P of the worker before this request was added
    added_ms: int


@njit()
def _decay(load_ms: np.ndarray, ticks: int, keep: int, parts: int) -> None:
    """Apply P <- floor(P * keep / parts) `ticks` times to every worker; P reaches 0 and stays there."""
    for worker in range(len(load_ms)):
        left = ticks
        while left > 0 and load_ms[worker] > 0:
            load_ms[worker] = load_ms[worker] * keep // parts
            left -= 1


@njit()
def _choose(base_ms: np.ndarray, load_ms: np.ndarray, bias_ms: np.ndarray, mask: np.ndarray, margin_ms: float) -> int:
    """Return the allowed worker of smallest prediction, where a later one must be better by more than the margin."""
    best, best_ms = -1, np.inf
    for worker in range(len(mask)):
        if mask[worker]:
            predicted_ms = max(1.0, base_ms[worker] + load_ms[worker] + bias_ms[worker])
            if predicted_ms + margin_ms < best_ms:
                best, best_ms = worker, predicted_ms
    return best


@dataclass(eq=False)
class LBGRRelease(RoutingController):
    """Policy `eta_online_3d` of the released code: prediction = base + P + bias per worker, the smallest wins.

    - base = max(1, `ms_per_char` * uncached characters), uncached against the router's own text tree.
    - P (integer ms): base of each routed request, rounded, is added at the decision and
      floor(P * `keep` / `parts`) is taken at every tick of `tick_s`, counted from time 0.
    - bias: recursive least squares with forgetting on the intercept alone (the release masks the features hit, miss and
      load out of learning) of y = max(1, E - base - P at the decision), E = finish - decision, ms.
    - Scanning in list order, a worker replaces the best so far only if it is better by more than `margin_ms`: ties
      within it go to the lowest id, so a cold idle fleet starts with worker 0.
    - The prompt is inserted into the chosen worker's tree at the decision and refreshed when it is done.
    - When it is done, failed or rejected, the rest of its contribution, added * (keep/parts)^ticks rounded, is
      released, never below 0. Only done requests teach. A request that is routed again first releases what it held.

    The smallest prediction is one of E in milliseconds, as its bias is learned from E; `predicted_s` is it in seconds.

    Masks: masked workers are skipped in the scan. A worker that has restarted leaves the tree.

    One thing differs from the release. It keeps a 4x4 covariance whose three masked diagonal entries are divided by
    `forgetting` at every update and overflow at update 86,649 of a worker; the bias turns NaN and that worker gets
    everything. The masked entries never touch the learned one, so only that one is kept: it stays between 0 and
    max(`p0`, 1 - `forgetting`), and the bias is the same, bit by bit, for as long as the release lives.

    Ticks are counted in whole microseconds, so that a time like 0.58 s lies on its tick.

    Source: github fzwark/KVRouting, fc3b2a1, sgl-router/src/router.rs (fork of sgl-router 0.1.4), the code of
    "Randomization Boosts KV Caching, Learning Balances Query Load" (ICLR 2026, arXiv 2601.18999).

    Args:
        ms_per_char: predicted milliseconds per uncached character.
        keep: numerator of the decay of P.
        parts: denominator of the decay of P.
        tick_s: period of the decay, seconds.
        margin_ms: advantage that a later worker needs, ms.
        forgetting: lambda of the recursive least squares.
        p0: initial variance of the bias.
        max_tree_chars: size to which each worker's tree is trimmed, characters.
        evict_every_s: period of the trimming, seconds.

    Raises:
        ConfigError: a value out of range.
    """

    ms_per_char: float = option(1.0, "predicted milliseconds per uncached character", "ms", low=0)
    keep: int = option(31, "numerator of the decay of P, at most `parts`", low=0)
    parts: int = option(32, "denominator of the decay of P", low=1)
    tick_s: float = option(0.02, "period of the decay", "s", low=1e-6)
    margin_ms: float = option(1.0, "advantage that a later worker needs", "ms", low=0)
    forgetting: float = option(0.992, "lambda of the recursive least squares", above=0, high=1)
    p0: float = option(1e6, "initial variance of the bias", low=0)
    max_tree_chars: int = option(2**24, "size to which each worker's tree is trimmed", "characters", low=1)
    evict_every_s: float = option(60.0, "period of the trimming", "s", above=0)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.keep > self.parts:
            raise ConfigError(f"keep must be at most parts ({self.parts}), got {self.keep}")

    def reset(self, spec: FleetSpec, seed: int) -> None:
        """Start with empty trees, no load and no bias; nothing here is random."""
        super().reset(spec, seed)
        self.tree = TextTree(spec, self.max_tree_chars, self.evict_every_s)
        self.load_ms = np.zeros(spec.workers, np.int64)
        self.bias_ms = np.zeros(spec.workers)
        self._variance = np.full(spec.workers, self.p0)
        self._inflight: dict[int, _Reservation] = {}
        self._tick = 0
        self.predicted_s = -1.0

    def act(self, decision: Decision) -> int:
        """Return the worker of smallest prediction, reserve its load and remember the prompt there."""
        allowed_workers(decision.mask)
        self._advance(decision.time_s)
        for lost in self.restarted(decision):
            self.tree.remove_worker(lost)
        if decision.request in self._inflight:
            self._release(self._inflight.pop(decision.request), decision.time_s)
        uncached = np.maximum(decision.prompt_chars - self.tree.match_chars(decision.node), 0)
        base_ms = np.maximum(self.ms_per_char * uncached, 1.0)
        worker = int(_choose(base_ms, self.load_ms, self.bias_ms, decision.mask, self.margin_ms))
        base = float(base_ms[worker])
        self.predicted_s = max(1.0, base + float(self.load_ms[worker] + self.bias_ms[worker])) / 1000.0
        held = _Reservation(worker, decision.node, decision.time_s, base, int(self.load_ms[worker]), int(base + 0.5))
        self._inflight[decision.request] = held
        self.load_ms[worker] += held.added_ms
        self.tree.insert(worker, decision.node, decision.time_s)
        return worker

    def observe(self, records: np.ndarray) -> None:
        """Release what the finished requests had reserved, learn from the done ones and refresh their prompts."""
        columns = (records[name].tolist() for name in ("request", "status", "finish_s"))
        for request, status, finish_s in zip(*columns, strict=True):
            held = self._inflight.pop(request, None)
            if held is None:
                continue
            self._advance(finish_s)
            self._release(held, finish_s)
            if status == DONE:
                latency_ms = 1000.0 * (finish_s - held.time_s)
                self._learn(held.worker, max(1.0, latency_ms - (held.base_ms + held.load_ms)))
                self.tree.insert(held.worker, held.node, finish_s)

    def _ticks(self, time_s: float) -> int:
        """Return the number of whole ticks in `time_s`."""
        return round(time_s * 1e6) // round(self.tick_s * 1e6)

    def _advance(self, time_s: float) -> None:
        """Bring P and the trees to `time_s`; a time in the past changes nothing."""
        self.tree.advance(time_s)
        tick = self._ticks(time_s)
        if tick > self._tick:
            _decay(self.load_ms, tick - self._tick, self.keep, self.parts)
            self._tick = tick

    def _release(self, held: _Reservation, time_s: float) -> None:
        """Take back what is left of a reservation at `time_s`."""
        ticks = max(0, self._ticks(time_s - held.time_s))
        left_ms = int(held.added_ms * (self.keep / self.parts) ** ticks + 0.5)
        self.load_ms[held.worker] = max(0, self.load_ms[held.worker] - left_ms)

    def _learn(self, worker: int, residual_ms: float) -> None:
        """One step of recursive least squares with forgetting on the intercept."""
        variance = self._variance[worker]
        gain = variance / (self.forgetting + variance)
        self.bias_ms[worker] += gain * (residual_ms - self.bias_ms[worker])
        self._variance[worker] = (variance - gain * variance) / self.forgetting
