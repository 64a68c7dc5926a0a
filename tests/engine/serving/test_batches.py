"""What a step lasts, in closed form and step by step."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from kvgym.types import DONE


def row(*path: list[Any], **fields: Any) -> dict[str, Any]:
    return {"path": list(path), **fields}


def test_steps__one_request(build: Any, drain: Any) -> None:
    """Prefill 1 + .25 * 4; two decode steps of .5 + .125 + context / 64 with a context of 5 and 6 tokens."""
    engine = build([row(["a", 4], output_tokens=3)])
    record = drain(engine)[0]
    assert record["first_token_s"] == 2.0
    assert record["finish_s"] == 2.0 + 2 * 0.625 + 11 / 64
    assert engine.cache.workers["busy_s"][0] == record["finish_s"]
    assert engine.cache.workers["steps"][0] == 3


def test_steps__a_batch(build: Any, drain: Any) -> None:
    """Prefill 1 + .25 * 7 for both; a step of two (context 5 + 4), then one of request 0 alone (context 6)."""
    records = drain(build([row(["a", 4], output_tokens=3), row(["b", 3], output_tokens=2)]))
    assert list(records["request"]) == [1, 0]
    assert list(records["first_token_s"]) == [2.75, 2.75]
    both = 2.75 + 0.5 + 2 * 0.125 + 9 / 64
    assert list(records["finish_s"]) == [both, both + 0.625 + 6 / 64]


def test_steps__squared_and_cached_tokens(build: Any, drain: Any) -> None:
    """5 computed behind 8 cached tokens: p_quad * 5 * (8 + 2.5) + p_kv * 13."""
    rows = [row(["a", 8]), row(["a", 8], ["b", 5], arrival_s=64.0)]
    records = drain(build(rows, p0=1.0, p_tok=0.0, p_quad=1 / 32, p_kv=1 / 64))
    assert list(records["hit_tokens"]) == [0, 8]
    assert records["finish_s"][0] == 1 + 8 * 4 / 32 + 8 / 64
    assert records["finish_s"][1] == 64 + 1 + 5 * 10.5 / 32 + 13 / 64


def test_steps__overheads_and_speed(build: Any, drain: Any) -> None:
    """A request reaches the worker .25 s late; each step lasts .5 s more; worker 1 is twice as fast."""
    rows = [row(["a", 4], output_tokens=2), row(["a", 4], output_tokens=2)]
    engine = build(rows, capacity=[100, 100], speeds=[1.0, 2.0], request_s=0.25, step_s=0.5)
    records = np.sort(drain(engine, lambda request: request), order="request")
    prefill, decode = 2.0 + 0.5, 0.625 + 5 / 64 + 0.5
    assert list(records["admitted_s"]) == [0.25, 0.25]
    assert list(records["first_token_s"]) == [0.25 + prefill, 0.25 + prefill / 2]
    assert list(records["finish_s"]) == [0.25 + prefill + decode, 0.25 + (prefill + decode) / 2]
    assert list(engine.cache.workers["busy_s"]) == [prefill + decode, (prefill + decode) / 2]


def test_leap__many_steps_are_the_sum_of_each(build: Any, drain: Any) -> None:
    steps = 200
    record = drain(build([row(["a", 4], output_tokens=steps + 1)]))[0]
    assert record["finish_s"] == 2.0 + sum(0.625 + (4 + k) / 64 for k in range(1, steps + 1))


@pytest.mark.parametrize("steps", [1, 7, 13])
@pytest.mark.parametrize("early_s", [0.0, 0.01])
def test_leap__an_arrival_waits_for_the_step_in_progress(build: Any, drain: Any, steps: int, early_s: float) -> None:
    """A request that arrives in step `steps` of a long leap, or exactly at its end, is admitted when the step ends."""
    end = 2.0 + sum(0.625 + (4 + k) / 64 for k in range(1, steps + 1))
    rows = [row(["a", 4], output_tokens=50), row(["b", 3], arrival_s=end - early_s)]
    records = drain(build(rows))
    assert list(records["request"]) == [1, 0]
    assert records["admitted_s"][0] == end
    whole = drain(build(rows[:1]))["finish_s"][0]
    assert records["finish_s"][1] == whole + 1 + 0.25 * 3  # the prefill goes first, then the rest of the leap


def test_leap__a_request_that_cannot_be_admitted_changes_nothing(build: Any, drain: Any) -> None:
    rows = [row(["a", 4], output_tokens=50), row(["b", 3], arrival_s=9.0)]
    records = drain(build(rows, max_running=1))
    assert records["finish_s"][0] == drain(build(rows[:1]))["finish_s"][0] == records["admitted_s"][1]


def test_leap__ends_where_memory_runs_short(build: Any, drain: Any) -> None:
    """30 of 64 tokens are cached and unlocked; two answers of 20 grow into them, evicted as they are needed."""
    rows = [row(["old", 30]), row(["a", 4], output_tokens=20, arrival_s=50.0), row(["b", 4], output_tokens=20)]
    rows[2]["arrival_s"] = 50.0
    engine = build(rows, "rlt", 64)
    records = drain(engine)
    assert (records["status"] == DONE).all()
    assert engine.cache.workers["evicted"][0] == 30 + 2 * (4 + 19) - 64  # one token at a time, never too many


def test_twins__computed_together_are_kept_once(build: Any, drain: Any) -> None:
    """Both compute the prompt in one batch; the duplicate is given back and nothing is counted as a hit."""
    engine = build([row(["a", 20], output_tokens=2), row(["a", 20], output_tokens=2)], capacity=100)
    assert list(drain(engine)["hit_tokens"]) == [0, 0]
    assert engine.cache.workers["evictable"][0] == 20 + 2  # two answers of which one token each has KV
