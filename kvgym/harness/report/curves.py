"""Request records and load samples become the numbers behind the plots."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from kvgym.harness.compare.cell import StoredCell
from kvgym.harness.compare.store import Store
from kvgym.harness.measure.samples import Samples
from kvgym.types import DONE

LEVELS = np.concatenate([np.linspace(0.0, 0.9, 37), np.linspace(0.91, 0.99, 9), [0.995, 0.999, 1.0]])
"""Cumulative shares at which a distribution is drawn; denser in its tail."""

POINTS = 96
"""Time slots of a curve over time."""


class Curves(NamedTuple):
    """What is drawn of one cell; None where nothing completed or no sample is there."""

    latency_s: np.ndarray | None  # (levels,): quantiles at LEVELS over the requests of all seeds
    ttft_s: np.ndarray | None  # (levels,)
    share: np.ndarray  # (workers,): share of the requests, over all seeds
    end_s: float  # end of the time axis, which begins with the first arrival: makespan of the first seed
    queued: np.ndarray  # (workers, POINTS): mean number of waiting requests per time slot, first seed
    kv_use: np.ndarray | None  # (workers, POINTS): KV use at the middle of each slot, first seed


def read_curves(cell: StoredCell, seeds: tuple[int, ...], store: Store, warmup_s: float) -> Curves:
    """Return the curves of `cell` from its finished runs `seeds`.

    Args:
        cell: the cell.
        seeds: seeds with a finished run, at least one.
        store: the folder's runs.
        warmup_s: requests that arrive earlier after the first arrival are left out of the distributions.

    Raises:
        ResultsError: a file is damaged.
    """
    first, facts = store.load(cell, seeds[0])
    samples = store.load_samples(cell, seeds[0])
    begin_s = float(first["arrival_s"].min()) if len(first) else 0.0
    fleet, end_s = len(facts["totals"]["busy_s"]), max(float(facts["totals"]["makespan_s"]) - begin_s, 0.0)
    latency, ttft, workers = [], [], []
    for seed in seeds:
        records, _ = store.load(cell, seed)
        done = records[records["status"] == DONE]
        done = done[done["arrival_s"] >= records["arrival_s"].min(initial=np.inf) + warmup_s]
        latency.append(done["finish_s"] - done["arrival_s"])
        ttft.append(done["first_token_s"] - done["arrival_s"])
        workers.append(records["worker"][records["worker"] >= 0])
    sent = np.bincount(np.concatenate(workers), minlength=fleet)
    share = sent / max(sent.sum(), 1)
    queued = queue_depth(_from(first, begin_s), fleet, end_s)
    kv_use = None if samples is None else kv_over_time(samples._replace(time_s=samples.time_s - begin_s), end_s)
    return Curves(_quantiles(latency), _quantiles(ttft), share, end_s, queued, kv_use)


def _from(records: np.ndarray, begin_s: float) -> np.ndarray:
    """Return the rows with times counted from `begin_s`; -1, which is no time, stays."""
    moved = records.copy()
    for name in ("arrival_s", "admitted_s", "finish_s"):
        moved[name] = np.where(records[name] >= 0, records[name] - begin_s, records[name])
    return moved


def _quantiles(values: list[np.ndarray]) -> np.ndarray | None:
    merged = np.concatenate(values)
    return np.quantile(merged, LEVELS) if len(merged) else None


def queue_depth(records: np.ndarray, workers: int, end_s: float) -> np.ndarray:
    """Return the mean number of requests that wait for their first admission, float64 (workers, POINTS).

    Column i is the slot ``end_s * i / POINTS`` to ``end_s * (i + 1) / POINTS``. A request that never was admitted
    waits until it ends.
    """
    edges = np.linspace(0.0, max(end_s, 1e-9), POINTS + 1)
    depth = np.zeros((workers, POINTS))
    for worker in range(workers):
        own = records[records["worker"] == worker]
        leave_s = np.where(own["admitted_s"] >= 0, own["admitted_s"], own["finish_s"])
        waited = _area(own["arrival_s"], edges) - _area(leave_s, edges)
        depth[worker] = np.diff(waited) / np.diff(edges)
    return np.maximum(depth, 0.0)  # differences of large sums may end a hair below


def _area(times_s: np.ndarray, at_s: np.ndarray) -> np.ndarray:
    """Return the sum over `times_s` of ``max(at_s - time, 0)`` for each of `at_s`."""
    ordered = np.sort(times_s)
    before = np.searchsorted(ordered, at_s)
    sums = np.concatenate([[0.0], np.cumsum(ordered)])
    return before * at_s - sums[before]


def kv_over_time(samples: Samples, end_s: float) -> np.ndarray:
    """Return the KV use of each worker at the middle of each time slot, float64 (workers, POINTS)."""
    middle_s = (np.arange(POINTS) + 0.5) * end_s / POINTS
    return np.array([np.interp(middle_s, samples.time_s, column) for column in samples.kv_use.T])
