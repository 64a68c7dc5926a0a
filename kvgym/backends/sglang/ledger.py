"""The books of a live episode say who is where, integrate what rewards are made of, and record what has ended."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from kvgym.backends.base import Progress
from kvgym.backends.sglang.client import Answer
from kvgym.types import DONE, RECORD

_COPIED = ("session", "turn", "priority", "tenant", "prompt_tokens")


class Ledger:
    """Counts and times of one episode; all times are wall seconds since its start.

    Args:
        requests: REQUEST records of the workload, shape (requests,).
        labels: of the workers; an answer may carry the one of the worker that gave it.
        journal: file to which each ended request is appended as a JSON line at once; none: not kept.
        front: a router in front of the workers chooses among them.
        cost: (prompt, hit, generated tokens) -> seconds that a worker would take for such a request alone; none: 0.

    Attributes:
        inflight: requests, and their prompt tokens, at each worker, int64 (2, workers).
        attempts: times that each request was sent, int32 (requests,).
    """

    def __init__(
        self,
        requests: np.ndarray,
        labels: Sequence[str],
        journal: Path | None = None,
        front: bool = False,
        cost: Callable[[int, int, int], float] = lambda prompt, hit, out: 0.0,
    ) -> None:
        self._cost = cost
        self._front = front
        workers = len(labels)
        self._labels = {label: worker for worker, label in enumerate(labels)} if len(set(labels)) == workers else {}
        self.inflight = np.zeros((2, workers), np.int64)
        self.attempts = np.zeros(len(requests), np.int32)
        self._requests = requests
        self._rows = np.zeros(len(requests), RECORD)
        self._ended: list[int] = []
        self._seen = 0
        self._arrived_s = np.full(len(requests), -1.0)
        self._waits = np.zeros(len(requests), bool)  # arrived and without a first token
        self._present = np.zeros(2, np.int64)  # in the system; of them without a first token
        self._area_s = np.zeros(2)
        self._busy_s = np.zeros(workers)
        self._alone_s = np.zeros(workers)
        self._last_s = 0.0
        self._journal = journal

    def enter(self, r: int, now_s: float) -> None:
        """Request `r` is at the router; a second time, after a loss, changes nothing."""
        if self._arrived_s[r] < 0:
            self._advance(now_s)
            self._arrived_s[r], self._waits[r] = now_s, True
            self._present += 1

    def send(self, r: int, worker: int, now_s: float) -> None:
        """Request `r` goes to `worker`."""
        self._advance(now_s)
        self.attempts[r] += 1
        self.inflight[:, worker] += (1, self._requests["prompt_tokens"][r])

    def first_token(self, r: int, now_s: float) -> None:
        """Request `r` has its first token (of its first attempt that gives one)."""
        self._advance(now_s)
        self._present[1] -= self._waits[r]
        self._waits[r] = False

    def back(self, r: int, worker: int, now_s: float) -> None:
        """Request `r` is no longer at `worker`: answered, refused or lost."""
        self._advance(now_s)
        self.inflight[:, worker] -= (1, self._requests["prompt_tokens"][r])

    def end(
        self, r: int, status: int, worker: int, now_s: float, answer: Answer | None = None, start_s: float = 0.0
    ) -> None:
        """Write the record of request `r`; `start_s` is the episode's start on the clock of `answer`."""
        self.enter(r, now_s)
        self.first_token(r, now_s)
        self._present[0] -= 1
        row = self._rows[r]
        for name in _COPIED:
            row[name] = self._requests[name][r]
        row["request"], row["worker"], row["status"], row["attempts"] = r, worker, status, self.attempts[r]
        row["arrival_s"], row["finish_s"] = self._arrived_s[r], now_s
        row["admitted_s"] = row["first_token_s"] = row["predicted_s"] = -1.0
        if answer is not None and status == DONE:
            row["hit_tokens"], row["output_tokens"] = answer.cached_tokens, len(answer.output_ids)
            row["retractions"], row["admitted_s"] = answer.retractions, answer.sent_s + answer.queue_s - start_s
            row["first_token_s"], row["finish_s"] = answer.first_s - start_s, answer.finish_s - start_s
            row["worker"] = self._labels.get(answer.label, worker)  # a router in front may have chosen another one
            served = (int(row[name]) for name in ("prompt_tokens", "hit_tokens", "output_tokens"))
            self._alone_s[row["worker"]] += self._cost(*served)
        self._ended.append(r)
        if self._journal is not None:
            with self._journal.open("a", encoding="utf-8") as file:
                file.write(json.dumps(dict(zip(RECORD.names or (), row.item(), strict=True))) + "\n")

    def progress(self, now_s: float) -> Progress:
        """Return the time and the integrals up to `now_s`."""
        self._advance(now_s)
        in_system_s, no_token_s = self._area_s.tolist()
        return Progress(self._last_s, in_system_s, no_token_s, float(self._busy_s.max()), float(self._alone_s.max()))

    def completions(self) -> np.ndarray:
        """Return RECORD rows that have ended since the last call."""
        rows = self._rows[self._ended[self._seen :]]
        self._seen = len(self._ended)
        return rows

    def records(self) -> np.ndarray:
        """Return RECORD rows of everything that has ended, in order of completion."""
        return self._rows[self._ended]

    def stats(self) -> dict[str, Any]:
        """Return per-worker lists and totals; ``busy_s`` is the time with at least one request at the worker.

        Behind a router that chooses by itself this is known afterwards only, from the records.
        """
        records, workers = self.records(), len(self._busy_s)
        busy_s = self._busy_s
        if self._front:
            busy_s = np.array([_covered_s(records[records["worker"] == worker]) for worker in range(workers)])
        known = records[records["worker"] >= 0]
        stats: dict[str, Any] = {"busy_s": busy_s.tolist()}
        for name in ("hit_tokens", "prompt_tokens", "retractions"):
            stats[name] = np.bincount(known["worker"], known[name], workers).astype(int).tolist()
        stats["makespan_s"] = float(records["finish_s"].max()) if len(records) else 0.0
        stats["makespan_load_s"] = float(busy_s.max())
        return stats

    def _advance(self, now_s: float) -> None:
        if (step_s := now_s - self._last_s) > 0:
            self._area_s += self._present * step_s
            self._busy_s += (self.inflight[0] > 0) * step_s
            self._last_s = now_s


def _covered_s(records: np.ndarray) -> float:
    """Return for how long at least one of `records` was between arrival and end, seconds."""
    covered_s, until_s = 0.0, 0.0
    for start_s, end_s in sorted(zip(records["arrival_s"].tolist(), records["finish_s"].tolist(), strict=True)):
        covered_s += max(end_s - max(start_s, until_s), 0.0)
        until_s = max(until_s, end_s)
    return covered_s
