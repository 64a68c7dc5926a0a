"""Vllm workers of the engine against vLLM's own scheduler and KV cache manager, step by step, on random episodes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kvgym.config.engines import ENGINES
from kvgym.engine.engine import Engine, default_options
from kvgym.engine.state import DECIDE, DECODE, PREFILL
from kvgym.workloads.fixed import Fixed

RELEASES = {"vllm-0.13": "0.13.0", "vllm-0.33": "0.33.0"}
COSTS = {
    "p0": 1.0,
    "p_tok": 0.25,
    "p_quad": 2.0**-10,
    "d0": 0.5,
    "d_seq": 0.125,
    "d_kvtok": 2.0**-7,
    "mix_kvtok": 2.0**-8,
}
"""Exact in binary, so that sums are exact; a step's length tells what was in it."""
PAGE = 4

REQUEST = st.tuples(
    st.lists(st.integers(0, 2), min_size=1, max_size=4),  # symbols of the prompt, or of the new question
    st.one_of(st.integers(1, 6), st.integers(10, 40)),  # output tokens
    st.sampled_from((0.0, 0.0, 0.5, 1.0, 7.0, 60.0)),  # gap to the arrival before
    st.integers(0, 3),  # continues what this conversation has said so far; 0: nothing
)


def spell(drawn: list[Any]) -> tuple[list[dict[str, Any]], list[Any]]:
    """Return `Fixed` rows, and the same requests as [arrival_s, prompt, answer] in token ids."""
    rows: list[dict[str, Any]] = []
    history: dict[int, list[list[Any]]] = {}
    ids: dict[Any, int] = {}
    told, arrival_s = [], -drawn[0][2]
    for i, (symbols, output, gap_s, conversation) in enumerate(drawn):
        arrival_s += gap_s
        before = history.get(conversation, []) if conversation else []
        path = [*before, *([s, 1 + (7 * s + 5 * d) % 13] for d, s in enumerate(symbols))]
        answer = [f"answer {i}", output]
        rows.append({"path": path, "output_tokens": output, "max_new_tokens": output, "arrival_s": arrival_s})
        rows[-1]["answer"] = answer[0]
        history[conversation] = [*path, answer]
        names: tuple[Any, ...] = ()
        tokens: list[int] = []
        for name, length in [*path, answer]:
            names = (*names, name)
            tokens += [ids.setdefault((names, t), len(ids)) for t in range(length)]
        told.append([arrival_s, tokens[: len(tokens) - output], tokens[len(tokens) - output :]])
    return rows, told


@st.composite
def episodes(draw: st.DrawFn) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    rows, told = spell(draw(st.lists(REQUEST, min_size=2, max_size=16)))
    longest = max(len(prompt) + len(answer) for _, prompt, answer in told)
    places = draw(st.sampled_from((1, 2, 5, 16)))
    return rows, {
        "blocks": -(-longest // PAGE) + draw(st.sampled_from((0, 1, 3, 8, 30))),
        "page": PAGE,
        "places": places,
        "budget": max(draw(st.sampled_from((3, 8, 21, 400))), places),
        "longest": draw(st.sampled_from((0, 0, 2, 9))),
        "costs": COSTS,
        "requests": told,
    }


def serve(engine_name: str, rows: list[dict[str, Any]], asked: dict[str, Any]) -> Engine:
    """Return the engine after the episode on one worker."""
    options = default_options()
    for name, value in COSTS.items():
        options[name] = value
    options["page"], options["check"], options["chunk"] = PAGE, 1, asked["budget"]
    options["max_running"], options["long_prefill"] = asked["places"], asked["longest"]
    pool = np.array([asked["blocks"] * PAGE])
    load = Fixed(tuple(rows)).generate(0, PAGE)
    engine = Engine(load, options, pool, np.ones(1), "lru", 0, engines=[ENGINES[engine_name]])
    while engine.run() == DECIDE:
        engine.route(0)
    return engine


def compare(engine: Engine, expected: dict[str, Any]) -> None:
    """Every request has its times and hits, and every step that the engine logged is one of vLLM's."""
    records = np.sort(engine.records(), order="request")
    names = ["hit_tokens", "admitted_s", "first_token_s", "finish_s", "retractions"]
    assert [list(row) for row in records[names].tolist()] == expected["requests"]
    worker, ring = engine.cache.workers[0], engine.sim.ring
    assert worker["steps"] == len(expected["steps"])
    assert worker["evicted"] == expected["evicted"] * PAGE
    ends = ring[:-1][np.isin(ring["kind"][:-1], (PREFILL, DECODE)) & (ring["time_s"][:-1] > 0)]
    theirs = {end_s: free for end_s, free, _ in expected["steps"]}
    if ring[-1]["tokens"] < len(ring) - 1:  # the log holds the whole episode
        assert {float(row["time_s"]): int(row["tokens"]) for row in ends}.items() <= theirs.items()


@pytest.mark.parametrize("name", RELEASES)
def test_scheduler__every_step_is_vllms(name: str, vllm: Callable[[str], Any], effort: int) -> None:
    oracle = vllm(RELEASES[name])
    seen = dict.fromkeys(("steps", "preemptions", "evictions", "hits"), 0)

    @settings(max_examples=400 * effort, deadline=None, database=None, derandomize=True,
              suppress_health_check=list(HealthCheck))  # fmt: skip
    @given(episodes())
    def check(drawn: tuple[list[dict[str, Any]], dict[str, Any]]) -> None:
        rows, asked = drawn
        expected = oracle.ask(**asked)
        compare(serve(name, rows, asked), expected)
        seen["steps"] += len(expected["steps"])
        seen["preemptions"] += sum(row[4] for row in expected["requests"])
        seen["evictions"] += expected["evicted"]
        seen["hits"] += sum(row[0] for row in expected["requests"])

    check()
    oracle.tell(f"{name}: {', '.join(f'{value:,} {what}' for what, value in seen.items())} equal vLLM's")
    assert seen["steps"] > 20_000 and min(seen.values()) > 50
