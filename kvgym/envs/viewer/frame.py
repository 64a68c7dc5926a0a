"""A frame is a picture of an episode as numbers: totals, each worker's load and cache, the last decision."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from kvgym.backends.base import Backend, Snapshot
from kvgym.types import DONE, Decision

OTHER, PRIVATE = -1, -2
"""Kinds of a cache bar's part that are no prefix's forest node: prefixes too small to be seen; what requests hold."""


class Part(NamedTuple):
    """A part of a worker's cache bar, in the bar's units from its left end."""

    start: int
    stop: int
    kind: int  # forest node of the prefix, OTHER or PRIVATE


@dataclass(frozen=True)
class Frame:
    """One picture.

    Attributes:
        time_s: simulated time.
        fleet: what the workers look like; ``fleet.prefix`` is the last request's.
        down: bool (workers,): may not be chosen.
        last: the last decision; None before the first.
        worker: where it sent its request; -1 before the first.
        done: requests served so far.
        lost: requests that were rejected or failed.
        hit_frac: cached part of the prompts of the requests served so far, 0..1; None while there is none.
        p50_s: median latency of the requests served so far; None while there is none.
        p95_s: their 95th percentile.
    """

    time_s: float
    fleet: Snapshot
    down: np.ndarray
    last: Decision | None
    worker: int
    done: int
    lost: int
    hit_frac: float | None
    p50_s: float | None
    p95_s: float | None

    @property
    def load_scale(self) -> int:
        """Requests at a worker that fill a load bar: a power of two, at least 16, so that it seldom changes."""
        most = int((self.fleet.running + self.fleet.queued).max())
        return max(16, 1 << (most - 1).bit_length() if most > 1 else 1)

    @property
    def used_frac(self) -> np.ndarray:
        """Used part of each worker's KV pool, 0..1."""
        return self.fleet.kv_used_tokens / np.maximum(self.fleet.kv_capacity_tokens, 1)

    def cache_parts(self, worker: int, width: int) -> Iterator[Part]:
        """Yield the parts of a worker's cache bar that is `width` units long; what is left of it is free.

        Prefixes come in the order of their numbers, so that they stay in place while the cache changes little. Those
        of less than one unit are drawn together as OTHER.
        """
        fleet, unit = self.fleet, int(self.fleet.kv_capacity_tokens[worker]) / width
        rows = fleet.resident[slice(*np.searchsorted(fleet.resident[:, 0], (worker, worker + 1)))]
        kinds, tokens = rows[:, 1], rows[:, 2]
        large = tokens >= unit
        cached = int(tokens.sum())
        sizes = [*tokens[large], cached - int(tokens[large].sum()), int(fleet.kv_used_tokens[worker]) - cached]
        ends = np.minimum(np.rint(np.cumsum(sizes) / unit), width).astype(int).tolist()
        for start, stop, kind in zip([0, *ends], ends, [*kinds[large].tolist(), OTHER, PRIVATE], strict=False):
            if stop > start:
                yield Part(start, stop, kind)


def make_frame(backend: Backend, decision: Decision | None, last: Decision | None, worker: int) -> Frame:
    """Return the picture of `backend`'s present state.

    Args:
        backend: the episode.
        decision: what waits to be routed; None: nothing does.
        last: the last decision taken; None before the first.
        worker: the worker that it chose.
    """
    fleet = backend.snapshot(0 if last is None else last.node)
    seen = last if decision is None else decision
    records = backend.records()
    done = records[records["status"] == DONE]
    p50_s, p95_s = np.percentile(done["finish_s"] - done["arrival_s"], (50, 95)).tolist() if len(done) else (None, None)
    return Frame(
        time_s=backend.progress().time_s,
        fleet=fleet,
        down=np.zeros(len(fleet.running), bool) if seen is None else ~seen.mask,
        last=last,
        worker=worker,
        done=len(done),
        lost=len(records) - len(done),
        hit_frac=float(done["hit_tokens"].sum() / done["prompt_tokens"].sum()) if len(done) else None,
        p50_s=p50_s,
        p95_s=p95_s,
    )
