"""kvgym's cache against SGLang's RadixCache, operation by operation, on random sequences that shrink."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from controllers.eviction import EVICTION
from controllers.eviction.learned import COLUMNS, FORMAT
from kvgym.engine.handle import CacheHandle
from kvgym.forest.forest import Forest

pytestmark = pytest.mark.timeout(900)  # shrinking a failure takes its time
POLICIES = ("lru", "lfu", "fifo", "mru", "filo", "slru", "priority")
PLUGINS = ("kvgym-rlt", "kvgym-rlt_release", "kvgym-random_leaf", "kvgym-lru")
"""Policies of kvgym's own inside SGLang's cache (the plug-in): the same seed and operations evict the same tokens."""
SCORER = {"hits": -1000.0, "children": -50.0, "idle": 1.0}
"""Weights of a learned policy that ranks by one feature after the other. The plug-in repeats no match of nothing, so
ticks pass more slowly there; a score that weighs ages against other features would see it."""
PAGE_SIZES = (1, 16)
EXAMPLES = 25
LEAST_OPERATIONS = 1_300
"""Per policy and page size; with --soak the 14 of SGLang's own make more than 50,000, `kvgym-rlt` more than 10,000."""

SYMBOLS = st.integers(0, 3)
SEQUENCES = st.lists(st.lists(SYMBOLS, min_size=1, max_size=14), min_size=1, max_size=8)
KINDS = ("evict", "match", "match", "insert", "insert", "insert", "lock", "unlock", "evict", "insert")
STEP = st.tuples(
    st.sampled_from(KINDS),
    st.integers(0, 7),  # which sequence, match or lock (modulo how many there are)
    st.integers(0, 14),  # how many pages of it; or how many to evict
    st.integers(0, 15),  # tokens beyond the last page
    st.integers(0, 3),  # priority
    st.integers(0, 14),  # pages that the request inserted before
)
STEPS = st.lists(st.lists(STEP, min_size=6), min_size=1)
"""Lists of lists: about 70 steps on the average, and yet whole stretches can be left out when a failure shrinks."""


def spell(symbols: list[int], page_size: int) -> list[int]:
    """One page per symbol; at page size 16 some different pages share their first half."""
    if page_size == 1:
        return symbols
    return [token for s in symbols for token in [s % 2] * (page_size // 2) + [s // 2] * (page_size // 2)]


def plan(steps: list[tuple[Any, ...]], sequences: list[list[int]], page_size: int) -> list[list[Any]]:
    """Turn drawn steps into operations that a correct caller may make.

    A node may be locked until the next eviction, which could remove it; a lock is released once.
    """
    operations: list[list[Any]] = []
    matched: list[int] = []
    locked: list[int] = []
    for kind, which, pages, rest, priority, inserted in steps:
        sequence = which % len(sequences)
        tokens = min(len(sequences[sequence]), pages * page_size + rest % page_size)
        if kind == "match":
            matched.append(len(operations))
            operations.append(["match", sequence, tokens])
        elif kind == "insert":
            operations.append(["insert", sequence, tokens, priority, inserted * page_size])
        elif kind == "evict" and pages * page_size + rest % page_size > 0:  # else it is what the others shrink to
            matched.clear()
            operations.append(["evict", pages * page_size + rest % page_size])
        elif kind == "lock" and matched:
            locked.append(matched[-1 - which % len(matched)])
            operations.append(["lock", locked[-1]])
        elif kind == "unlock" and locked:
            operations.append(["unlock", locked.pop(which % len(locked))])
    return operations


def replay(operations: list[list[Any]], sequences: list[list[int]], page_size: int, policy: str) -> list[list[int]]:
    """Apply the operations to kvgym's cache; rows as the oracle's."""
    forest = Forest(page_size)
    nodes = [forest.insert(tokens) for tokens in sequences]
    cache = CacheHandle(
        forest.nodes, EVICTION.load(policy.removeprefix("kvgym-")), capacity_tokens=1 << 20, page_size=page_size
    )
    slots: dict[int, int] = {}
    rows = []
    for index, (kind, *args) in enumerate(operations):
        value = 0
        if kind == "match":
            value, slots[index] = cache.match(0, nodes[args[0]], args[1] // page_size * page_size)
        elif kind == "insert":
            value = cache.insert(0, nodes[args[0]], args[1] // page_size * page_size, args[2], args[3])
        elif kind == "evict":
            value = cache.evict(0, args[0])
        elif kind == "lock":
            cache.lock(0, slots[args[0]])
        else:
            cache.unlock(0, slots[args[0]])
        cache.check()
        rows.append([value, cache.evictable_tokens(0), cache.protected_tokens(0), cache.resident_tokens(0)])
    return rows


@pytest.mark.parametrize("page_size", PAGE_SIZES)
@pytest.mark.parametrize("policy", (*POLICIES, *PLUGINS))
def test_operations__equal_sglang(oracle: Any, count: Any, effort: int, policy: str, page_size: int) -> None:
    compare_operations(oracle, count, policy, page_size, effort * LEAST_OPERATIONS)


@pytest.mark.parametrize("page_size", PAGE_SIZES)
def test_operations__of_a_learned_policy(oracle: Any, count: Any, effort: int, page_size: int, tmp_path: Path) -> None:
    file = tmp_path / "scorer.json"
    linear = [SCORER.get(name, 0.0) for name in COLUMNS]
    rule = {"recent": 2, "random": 3, "tail_tokens": page_size, "linear": linear, "units": []}
    file.write_text(json.dumps({"format": FORMAT, "columns": list(COLUMNS), **rule}))
    compare_operations(oracle, count, f"kvgym-{file}", page_size, effort * LEAST_OPERATIONS)


def compare_operations(oracle: Any, count: Any, policy: str, page_size: int, least: int) -> None:
    compared = 0

    @settings(
        max_examples=EXAMPLES, deadline=None, database=None, print_blob=True, suppress_health_check=list(HealthCheck)
    )
    @given(SEQUENCES, STEPS)
    def compare(symbols: list[list[int]], steps: list[list[tuple[Any, ...]]]) -> None:
        nonlocal compared
        sequences = [spell(s, page_size) for s in symbols]
        operations = plan([step for part in steps for step in part], sequences, page_size)
        theirs = oracle.ask(
            do="operations", page_size=page_size, policy=policy, sequences=sequences, operations=operations
        )
        ours = replay(operations, sequences, page_size, policy)
        for index, (mine, truth) in enumerate(zip(ours, theirs, strict=True)):
            assert mine == truth, (
                f"operation {index}: [value, evictable, protected, resident] is {mine}, SGLang says {truth}; "
                f"sequences {sequences}, operations {operations[: index + 1]}"
            )
        compared += len(operations)

    while compared < least:
        compare()
    count("operations", f"{Path(policy).name}, page size {page_size}", compared)
