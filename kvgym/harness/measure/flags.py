"""Marks what needs a second look: one worker with nearly everything, workers with nothing, cut answers, a backlog."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from kvgym.config.schedule import FleetEvent, up_windows

MOST_SHARE = 0.9
LEAST_IDLE = 0.5
LEAST_REQUESTS = 10
"""Requests under which a share says nothing."""
LEAST_QUEUED, LEAST_BUSY = 0.1, 0.9
"""An unused worker is worth a word if so large a share of the requests queued elsewhere, or another was so busy."""


class Concentration(NamedTuple):
    """How unevenly one run used its fleet, while there was a choice."""

    share: float  # of the requests that came while at least two workers were up, on the most chosen worker
    idle: float  # share of its time up that the least busy worker made no step in

    @property
    def suspicious(self) -> bool:
        """Whether one worker got more than 90 % while another idled more than half of the time."""
        return self.share > MOST_SHARE and self.idle > LEAST_IDLE


class Signs(NamedTuple):
    """What flags are made of, for one run."""

    concentration: Concentration
    unused: tuple[int, ...]  # workers that got nothing while requests queued at others, or one of them was busy
    queued: float  # share of the requests that came in the time of such a worker and queued; the largest of them
    busy: float  # share of its time up that the busiest worker made steps in
    capped: float  # answers cut at the KV capacity
    capped_tokens: float  # what they lack
    saturated: float | None  # as in `statistics.METRICS`


def signs(
    records: np.ndarray,
    totals: Mapping[str, Any],
    metrics: Mapping[str, float | None],
    schedule: Sequence[FleetEvent] = (),
) -> Signs:
    """Return the signs of a run.

    Args:
        records: RECORD rows of all requests.
        totals: the backend's `stats()`.
        metrics: what `statistics.summarize` says of the run.
        schedule: when workers joined, failed and came back.
    """
    use = _Use(records, totals, schedule)
    unused, queued = use.unused()
    capped, tokens = metrics["capped"] or 0.0, metrics["capped_tokens"] or 0.0
    return Signs(use.concentration(), unused, queued, use.busy, capped, tokens, metrics["saturated"])


class _Use:
    """Who was up when, and what was sent there.

    Args: as of `signs`.
    """

    def __init__(self, records: np.ndarray, totals: Mapping[str, Any], schedule: Sequence[FleetEvent]) -> None:
        self.sent = records[records["worker"] >= 0]
        self.busy_s = np.asarray(totals["busy_s"], np.float64)
        start_s = float(records["arrival_s"].min()) if len(records) else 0.0
        end_s = max(float(totals["makespan_s"]), start_s)
        self.windows = [up_windows(schedule, worker) for worker in range(len(self.busy_s))]
        self.up_s = np.array(
            [sum(max(0.0, min(end, end_s) - max(begin, start_s)) for begin, end in own) for own in self.windows]
        )
        self.up = np.array([self._within(own) for own in self.windows])  # (workers, sent)

    @property
    def busy(self) -> float:
        """Share of its time up that the busiest worker made steps in."""
        some = self.up_s > 0
        return float((self.busy_s[some] / self.up_s[some]).max(initial=0.0))

    def _within(self, windows: Sequence[tuple[float, float]]) -> np.ndarray:
        time_s = self.sent["arrival_s"]
        return np.any([(begin <= time_s) & (time_s < end) for begin, end in windows] or [time_s != time_s], axis=0)

    def concentration(self) -> Concentration:
        """Return how much the most chosen worker got while there was another."""
        choice = self.sent[self.up.sum(axis=0) > 1]
        if len(choice) < LEAST_REQUESTS:
            return Concentration(0.0, 0.0)
        some = self.up_s > 0
        idle = 1.0 - float((self.busy_s[some] / self.up_s[some]).min(initial=1.0))
        return Concentration(float(np.bincount(choice["worker"]).max() / len(choice)), idle)

    def unused(self) -> tuple[tuple[int, ...], float]:
        """Return the workers that got nothing while others queued, and the largest share of requests that did."""
        numbers = np.bincount(self.sent["worker"], minlength=len(self.busy_s))
        candidates = np.flatnonzero((numbers == 0) & (self.busy_s == 0)).tolist()
        queued = self._queued() if candidates else np.zeros(0, bool)
        found = {}
        for worker in candidates:
            inside = self.up[worker]
            if inside.sum() < LEAST_REQUESTS:
                continue
            share = float(queued[inside].mean())
            if share >= LEAST_QUEUED or self.busy >= LEAST_BUSY:
                found[worker] = share
        return tuple(found), max(found.values(), default=0.0)

    def _queued(self) -> np.ndarray:
        """Return which requests came to a worker where another one still waited for its first admission."""
        result = np.zeros(len(self.sent), bool)
        for worker in np.unique(self.sent["worker"]).tolist():
            rows = np.flatnonzero(self.sent["worker"] == worker)
            rows = rows[np.argsort(self.sent["arrival_s"][rows], kind="stable")]
            own = self.sent[rows]
            left_s = np.sort(np.where(own["admitted_s"] >= 0, own["admitted_s"], own["finish_s"]))
            result[rows] = np.arange(len(own)) > np.searchsorted(left_s, own["arrival_s"], side="right")
        return result


def flags(runs: Mapping[int, Signs], reason: str) -> list[str]:
    """Return the flags of a cell, at most one of each kind.

    Args:
        runs: seed -> signs.
        reason: why its router may leave workers idle (`concentrates` of the controller); empty: it should not.
    """
    why = f"its rule allows that: {reason}" if reason else "nothing in its rule says so"
    kinds: tuple[Callable[[Mapping[int, Signs], str], list[str]], ...] = (_concentrated, _unused, _capped)
    return [
        *(flag for kind in kinds for flag in kind(runs, why)),
        *saturation_flags({seed: run.saturated for seed, run in runs.items()}),
    ]


def _concentrated(runs: Mapping[int, Signs], why: str) -> list[str]:
    found = {seed: run.concentration for seed, run in runs.items() if run.concentration.suspicious}
    if not found:
        return []
    worst = max(found.values())
    text = f"{worst.share:.1%} of the requests went to one worker while another idled {worst.idle:.0%} of the time"
    return [f"{text} ({_seeds(found)}); {why}"]


def _unused(runs: Mapping[int, Signs], why: str) -> list[str]:
    found = {seed: run for seed, run in runs.items() if run.unused}
    if not found:
        return []
    worst = max(found.values(), key=lambda run: len(run.unused))
    who = f"{len(worst.unused)} worker{'s' * (len(worst.unused) > 1)} got nothing"
    queued = f"{worst.queued:.0%} of the requests queued at others"
    what = queued if worst.queued >= LEAST_QUEUED else f"another was busy {worst.busy:.0%} of the time"
    return [f"{who} while {what} ({_seeds(found)}); {why}"]


def _capped(runs: Mapping[int, Signs], _why: str) -> list[str]:
    found = {seed: run for seed, run in runs.items() if run.capped}
    if not found:
        return []
    worst = max(found.values(), key=lambda run: run.capped)
    text = f"{worst.capped:,.0f} answers were cut at the KV capacity and lack {worst.capped_tokens:,.0f} tokens"
    return [f"{text} ({_seeds(found)}): a smaller cache looks faster than it is"]


def saturation_flags(saturated: Mapping[int, float | None]) -> list[str]:
    """Return at most one flag for a cell; `saturated` maps seed -> 1, 0 or none, as in `stats.METRICS`."""
    found = [seed for seed, value in saturated.items() if value]
    if not found:
        return []
    return [f"saturated ({_seeds(found)}): the backlog grew, so latencies depend on how long the run is"]


def _seeds(found: Mapping[int, Any] | Sequence[int]) -> str:
    return f"seed{'s' * (len(found) > 1)} {', '.join(map(str, found))}"
