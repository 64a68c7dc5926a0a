"""A router's own account of the workers becomes observation rows: seconds of work, of miss, of waiting."""

from __future__ import annotations

import numpy as np
from gymnasium import spaces

from controllers.accounts.work_model import Look, WorkModel
from controllers.routing.blend import KEEP, MISS_PRICE
from kvgym.encoding.decisions import Feature
from kvgym.types import Decision, FleetSpec

TOP = 1e4
"""Seconds and requests beyond are cut."""

WORK_FEATURES = (
    Feature("miss", "prefill of what the cache lacks of this prompt, by an index of the cache's size", "s", 0.0, TOP),
    Feature("cost", "this request alone", "s", 0.0, TOP),
    Feature("work", "work left, drained since it was sent", "s", 0.0, TOP),
    Feature("held", "work in flight, not drained", "s", 0.0, TOP),
    Feature("inflight", "requests in flight", "requests", 0.0, TOP),
    Feature("silent", "since the last answer; 0 when nothing is in flight", "s", 0.0, TOP),
    Feature("oldest", "age of the oldest request in flight", "s", 0.0, TOP),
    Feature("latency", "moving average from choice to answer", "s", 0.0, TOP),
    Feature("score", "the blend rule's score", "s", 0.0, TOP),
)
"""Columns of ``work``, shape (workers, 9), unscaled: the network takes logarithms, and needs the score in seconds."""


class WorkRows:
    """Makes the ``work`` rows of one episode; needs to be told every choice and every completion.

    Args:
        spec: the fleet of the episode.
    """

    def __init__(self, spec: FleetSpec) -> None:
        self._model = WorkModel(spec)
        self._look: Look | None = None

    def rows(self, decision: Decision) -> np.ndarray:
        """Return the rows for `decision`, a new float32 array (workers, 9)."""
        model, look = self._model, self._model.look(decision)
        load, self._look = model.load, look
        now_s = decision.time_s
        rows = np.empty((len(decision.mask), len(WORK_FEATURES)), np.float32)
        columns = (
            look.miss_s,
            look.cost_s,
            load.work_s,
            load.held_s,
            load.inflight,
            (now_s - model.answered_s) * (load.inflight > 0),
            now_s - load.rate.oldest_s(now_s),
            model.latency_s,
            load.work_s + KEEP * load.held_s + MISS_PRICE * look.miss_s,
        )
        for i, column in enumerate(columns):
            rows[:, i] = column
        return np.clip(rows, 0.0, TOP, out=rows)

    def send(self, decision: Decision, worker: int) -> None:
        """Note where the request of `decision`, the one that `rows` was asked about last, goes."""
        assert self._look is not None, "rows() comes before send()"
        self._model.send(decision, worker, self._look)

    def observe(self, records: np.ndarray) -> None:
        """Take note of ended requests (RECORD rows)."""
        self._model.observe(records)


def work_space(workers: int) -> spaces.Box:
    """Return the space of the ``work`` rows."""
    high = np.array([feature.high for feature in WORK_FEATURES], np.float32)
    return spaces.Box(0.0, np.tile(high, (workers, 1)), dtype=np.float32)
