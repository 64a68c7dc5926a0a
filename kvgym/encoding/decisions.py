"""A Decision becomes arrays of bounded float32 features, the same for training, simulation and live use.

One table names every feature; spaces, documentation and the encoder follow it. Rows of ``workers`` mean the same
whatever the number of workers, so a policy that treats them as a set carries over to larger fleets.

Scaling: log(x, top) = ln(1 + x) / ln(1 + top), so that small counts stay apart and overload still fits. Everything is
clipped to its bounds: a queue of more than `TOP_REQUESTS` requests or a length above `TOP_TOKENS` tokens reads 1.
What a decision does not tell reads 0: `running`, `queued` and `kv_used` of workers without metrics, and `hit` where
nobody knows; ``miss`` is the whole prompt then.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from gymnasium import spaces

from kvgym.jit.door import njit
from kvgym.types import Decision

TOP_TOKENS = 2**20
"""Tokens that read 1 in logarithmic features of one request."""
TOP_LOAD_TOKENS = 2**24
"""Tokens that read 1 in logarithmic features of one worker."""
TOP_REQUESTS = 2**12
"""Requests that read 1 in logarithmic features."""
TOP_TURNS = 2**8
"""Turns of a session that read 1."""


class Feature(NamedTuple):
    """One number of an observation: its name, what it means, its unit, and its bounds."""

    name: str
    meaning: str
    unit: str
    low: float = 0.0
    high: float = 1.0


REQUEST_FEATURES = (
    Feature("prompt", "prompt length", "log(tokens, 2^20)"),
    Feature("prompt_share", "prompt length over the mean KV capacity of the workers", "fraction"),
    Feature("max_new", "generated tokens that the client asks for", "log(tokens, 2^20)"),
    Feature("turn", "turn within its session, 0 for the first", "log(turns, 2^8)"),
)
"""Columns of ``request``, shape (4,)."""

WORKER_FEATURES = (
    Feature("inflight", "requests sent to the worker and not yet answered", "log(requests, 2^12)"),
    Feature("inflight_tokens", "their prompt tokens", "log(tokens, 2^24)"),
    Feature("inflight_share", "their prompt tokens over its KV capacity", "fraction"),
    Feature("running", "requests in its running batch", "log(requests, 2^12)"),
    Feature("queued", "requests waiting in its queue", "log(requests, 2^12)"),
    Feature("kv_used", "resident and private KV tokens over its KV capacity", "fraction"),
    Feature("capacity", "its KV capacity", "log(tokens, 2^24)"),
    Feature("hit", "part of this prompt that it holds, as far as the observability tells", "fraction"),
    Feature("miss", "tokens of this prompt that it would have to compute", "log(tokens, 2^20)"),
)
"""Columns of ``workers``, shape (workers, 9)."""


def observation_space(workers: int) -> spaces.Dict:
    """Return the space of `encode`'s observations: ``request`` (4,) and ``workers`` (workers, 9), float32 in [0, 1]."""
    return spaces.Dict({"request": box(REQUEST_FEATURES), "workers": box(WORKER_FEATURES, workers)})


def encode(decision: Decision) -> dict[str, np.ndarray]:
    """Return the observation of `decision`, new float32 arrays in `observation_space(workers)`.

    What is None in the decision counts as 0 at every worker.
    """
    workers = len(decision.mask)
    request = np.empty(len(REQUEST_FEATURES), np.float32)
    rows = np.empty((workers, len(WORKER_FEATURES)), np.float32)
    reported = decision.running, decision.queued, decision.kv_used_tokens, decision.hit_tokens
    running, queued, used, hit = (np.zeros(workers, np.int64) if part is None else part for part in reported)
    write_features(
        decision.prompt_tokens,
        decision.max_new_tokens,
        decision.turn,
        decision.inflight,
        decision.inflight_tokens,
        running,
        queued,
        used,
        decision.kv_capacity_tokens,
        hit,
        request,
        rows,
    )
    return {"request": request, "workers": rows}


def feature_table(arrays: Mapping[str, Sequence[Feature]] | None = None) -> str:
    """Return features as a Markdown table: array, index, name, meaning, unit, bounds.

    Args:
        arrays: name of an array -> its columns; none: those of `encode`.
    """
    lines = ["| array | index | name | meaning | unit | min | max |", "| --- | --- | --- | --- | --- | --- | --- |"]
    for array, features in (arrays or {"request": REQUEST_FEATURES, "workers": WORKER_FEATURES}).items():
        for i, f in enumerate(features):
            lines.append(f"| {array} | {i} | {f.name} | {f.meaning} | {f.unit} | {f.low:g} | {f.high:g} |")
    return "\n".join(lines)


def box(features: Sequence[Feature], rows: int | None = None) -> spaces.Box:
    """Return the float32 space of one row of features, shape (F,), or of so many rows, shape (rows, F)."""
    shape = (len(features),) if rows is None else (rows, len(features))
    low = np.broadcast_to(np.array([f.low for f in features], np.float32), shape)
    high = np.broadcast_to(np.array([f.high for f in features], np.float32), shape)
    return spaces.Box(low, high, dtype=np.float32)


@njit()
def log_scaled(value: float, top: float) -> float:
    """Return ln(1 + value) / ln(1 + top), at most 1."""
    return min(np.log1p(max(value, 0.0)) / np.log1p(top), 1.0)


@njit()
def share_of(part: float, whole: float) -> float:
    """Return part / whole within 0..1 (0 if `whole` is 0)."""
    return min(max(part / whole, 0.0), 1.0) if whole > 0 else 0.0


@njit()
def write_features(
    prompt: int,
    max_new: int,
    turn: int,
    inflight: np.ndarray,
    inflight_tokens: np.ndarray,
    running: np.ndarray,
    queued: np.ndarray,
    kv_used: np.ndarray,
    capacity: np.ndarray,
    hit: np.ndarray,
    request: np.ndarray,
    rows: np.ndarray,
) -> None:
    """Write the features in the order of the tables; all worker arrays have shape (workers,)."""
    total = 0.0
    for w in range(len(rows)):
        total += capacity[w]
        row = rows[w]
        row[0] = log_scaled(inflight[w], TOP_REQUESTS)
        row[1] = log_scaled(inflight_tokens[w], TOP_LOAD_TOKENS)
        row[2] = share_of(inflight_tokens[w], capacity[w])
        row[3] = log_scaled(running[w], TOP_REQUESTS)
        row[4] = log_scaled(queued[w], TOP_REQUESTS)
        row[5] = share_of(kv_used[w], capacity[w])
        row[6] = log_scaled(capacity[w], TOP_LOAD_TOKENS)
        row[7] = share_of(hit[w], prompt)
        row[8] = log_scaled(prompt - hit[w], TOP_TOKENS)
    request[0] = log_scaled(prompt, TOP_TOKENS)
    request[1] = share_of(prompt * len(rows), total)
    request[2] = log_scaled(max_new, TOP_TOKENS)
    request[3] = log_scaled(turn, TOP_TURNS)
