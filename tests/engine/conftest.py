"""Makers of engines and rows for the tests of the engine."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

from controllers.eviction import EVICTION
from kvgym.config.engines import EngineRules
from kvgym.config.schedule import FleetEvent, check_schedule
from kvgym.engine.engine import Engine, default_options
from kvgym.engine.pages import RATIO_INIT, RATIO_MIN
from kvgym.engine.serving.changes import fleet_changes
from kvgym.engine.state import DECIDE
from kvgym.workloads.base import Workload
from kvgym.workloads.fixed import Fixed

RULES = [rule.name for rule in dataclasses.fields(EngineRules)]
SGLANG = ("evict_full", "in_full", "mixed_chunk")
COSTS = {"p0": 1.0, "p_tok": 0.25, "d0": 0.5, "d_seq": 0.125, "d_kvtok": 0.015625, "mix_kvtok": 0.0078125}
"""Seconds that are exact in binary, so that sums are exact and events can fall on the same instant."""


def make_engine(
    load: Workload | list[Mapping[str, Any]],
    policy: str = "lru",
    capacity: int | list[int] = 1000,
    *,
    clients: int = 0,
    speeds: list[float] | None = None,
    seed: int = 1,
    schedule: Sequence[tuple[float, int, Any]] = (),
    detect_s: float = 0.0,
    network_s: list[list[float]] | None = None,
    oracle: bool = False,
    **options: float,
) -> Engine:
    """Return an engine on a workload, or on `Fixed` rows; `options` are fields of OPTIONS and of `EngineRules`."""
    record = default_options()
    rules = EngineRules(**{name: bool(options.pop(name)) for name in RULES if name in options})
    for name, value in {**COSTS, "check": 1, **options}.items():
        record[name] = value
    workload = (
        Fixed(tuple(load), clients=clients).generate(0, int(record["page"][0])) if isinstance(load, list) else load
    )
    capacities = np.atleast_1d(np.array(capacity, np.int64))
    events = [FleetEvent(*entry) for entry in schedule]
    check_schedule(events, len(capacities))
    return Engine(
        workload,
        record,
        capacities,
        np.array(speeds or [1.0] * len(capacities)),
        EVICTION.load(policy),
        seed,
        fleet_changes(events, detect_s),
        None if network_s is None else np.array(network_s),
        oracle=oracle,
        engines=[rules] * len(capacities),
    )


def finish(
    engine: Engine, route: Callable[[int], int] = lambda request: 0, delay_s: Callable[[int], float] = lambda request: 0
) -> np.ndarray:
    """Run to the end, request r to worker route(r) after delay_s(r); return the records in order of completion."""
    while engine.run() == DECIDE:
        engine.route(route(engine.pending), delay_s(engine.pending))
    return engine.records()


@dataclass(frozen=True)
class Case:
    """A drawn episode."""

    rows: list[dict[str, Any]]
    capacities: list[int]
    route: list[int]
    clients: int
    options: dict[str, float] = field(default_factory=dict)
    ratio: float = RATIO_INIT

    def engine(self, policy: str, **options: float) -> Engine:
        engine = make_engine(self.rows, policy, self.capacities, clients=self.clients, **{**self.options, **options})
        engine.cache.workers["ratio"] = self.ratio
        return engine

    def worker(self, request: int) -> int:
        return self.route[request % len(self.route)] % len(self.capacities)


def tokens_of(symbol: int, depth: int) -> int:
    return 1 + (7 * symbol + 5 * depth) % 13


ROW = st.tuples(
    st.lists(st.integers(0, 2), min_size=1, max_size=4),  # symbols of the prompt, or of the new question
    st.one_of(st.integers(1, 9), st.integers(20, 50)),  # output tokens
    st.integers(-2, 4),  # max_new_tokens beyond that
    st.sampled_from((0.0, 0.0, 0.5, 1.0, 7.0)),  # gap to the arrival before
    st.integers(0, 3),  # session; 0: its own
    st.integers(0, 2),  # priority
)


def spell(drawn: list[tuple[Any, ...]]) -> list[dict[str, Any]]:
    """Turn drawn rows into `Fixed` rows; a session's next prompt continues its last answer."""
    rows: list[dict[str, Any]] = []
    history: dict[int, list[list[Any]]] = {}
    arrival = -drawn[0][3]  # the first at 0
    for i, (symbols, output, beyond, gap, session, priority) in enumerate(drawn):
        arrival += gap
        before = history.get(session, []) if session else []
        path = [*before, *([s, tokens_of(s, d)] for d, s in enumerate(symbols))]
        row = {"path": path, "output_tokens": output, "max_new_tokens": max(output + beyond, 1), "priority": priority}
        row |= {"arrival_s": arrival, "think_s": gap, "answer": f"answer {i}"}
        if session:
            row["session"] = session
            history[session] = [*path, [f"answer {i}", output]]
        rows.append(row)
    return rows


CROWD_ROW = st.tuples(
    st.lists(st.integers(0, 2), min_size=1, max_size=2),
    st.integers(20, 70),
    st.integers(0, 4),
    st.sampled_from((2.0, 5.0, 9.0)),
    st.just(0),
    st.integers(0, 2),
)
"""Short prompts with long answers, one after the other: more runs than memory was reserved for."""


@st.composite
def crowds(draw: st.DrawFn, page: int) -> Case:
    """Draw an episode whose running requests are retracted."""
    rows = spell(draw(st.lists(CROWD_ROW, min_size=6, max_size=12)))
    options = {"page": page, "ignore_eos": 0} | {rule: draw(st.booleans()) for rule in SGLANG}
    options["chunk"] = page * draw(st.sampled_from((1, 400)))
    options["request_s"] = draw(st.sampled_from((0.0, 0.25, 3.0)))
    if options["mixed_chunk"]:
        options["max_running"], options["chunk"] = 100, 400
    capacity = draw(st.integers(10, 24)) * (16 if page > 1 else 10)
    return Case(rows, [capacity], [0], draw(st.integers(0, 4)), options, RATIO_MIN)


@st.composite
def cases(draw: st.DrawFn, page: int) -> Case:
    rows = spell(draw(st.lists(ROW, min_size=1, max_size=14)))
    longest = max(sum(tokens for _, tokens in row["path"]) for row in rows)
    beyond = draw(st.lists(st.integers(-1, 14), min_size=1, max_size=2))
    options = {
        "page": page,
        "chunk": page * draw(st.sampled_from((1, 2, 5, 400))),
        "prefill": page * draw(st.sampled_from((1, 3, 400))),
        "max_running": draw(st.sampled_from((1, 2, 100))),
        "ignore_eos": draw(st.sampled_from((0, 0, 1))),
        "request_s": draw(st.sampled_from((0.0, 0.25))),
        **{rule: draw(st.booleans()) for rule in SGLANG},
    }
    if options["mixed_chunk"]:  # as `ClusterConfig` wants it
        options["max_running"] = max(min(options["max_running"], options["chunk"] - 1), 1)
        options["chunk"] = max(options["chunk"], 2)
    capacities = [max(longest + (16 if page > 1 else 8) * more, page) for more in beyond]
    route = draw(st.lists(st.integers(0, 1), min_size=1, max_size=5))
    return Case(rows, capacities, route, draw(st.integers(0, 2)), options)


def examples(count: int) -> Any:
    return settings(
        max_examples=count, deadline=None, database=None, derandomize=True, suppress_health_check=list(HealthCheck)
    )


@pytest.fixture(scope="session")
def build() -> Callable[..., Engine]:
    return make_engine


@pytest.fixture(scope="session")
def costs() -> dict[str, float]:
    return COSTS


@pytest.fixture(scope="session")
def drain() -> Callable[..., np.ndarray]:
    return finish


@pytest.fixture(scope="session")
def by_request() -> Callable[[np.ndarray], np.ndarray]:
    """Sort records by request."""
    return lambda records: np.sort(records, order="request")


@pytest.fixture(scope="session")
def episodes() -> SimpleNamespace:
    """Strategies for random episodes, by page size, and the settings to draw them with."""
    return SimpleNamespace(any=lambda page: st.one_of(cases(page), crowds(page)), crowds=crowds, examples=examples)
