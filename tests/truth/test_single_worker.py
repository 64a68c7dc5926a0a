"""The single-worker experiment of the RLT paper at full size: hit rates of rlt and lru, one request at a time.

The figures for rlt are those of a faithful port of the paper's phase rule (dossier 3.3 and 7.9; the paper reports
41.93 % for rlt and 6.06 % for lru, most likely at 64 groups, where lru falls off its cliff).
"""

from __future__ import annotations

from typing import Any

import pytest

from kvgym.workloads.gsp import GSP

POOL_TOKENS = 196_000


def hit_percent(run: Any, policy: str, groups: int, order: Any, seed: int = 1) -> float:
    source = GSP(groups, lens=(512, 1024, 2048, 4096, 8192), order=order, rate_rps=None, clients=1)
    records, _ = run(source.generate(seed), policy, POOL_TOKENS, seed=seed)
    return float(100 * records["hit_tokens"].sum() / records["prompt_tokens"].sum())


@pytest.mark.parametrize(
    ("groups", "order", "percent"),
    [
        (48, "worst", 47.2),
        (64, "worst", 41.9),
        (72, "worst", 33.0),
        (128, "worst", 0.0),
        (64, "random", 38.9),
        (128, "random", 23.4),
    ],
)
def test_rlt__hit_rate(run: Any, groups: int, order: str, percent: float) -> None:
    assert hit_percent(run, "rlt", groups, order) == pytest.approx(percent, abs=1.5)


@pytest.mark.parametrize("groups", [64, 72, 128])
def test_lru__finds_nothing_once_the_cycle_exceeds_the_pool(run: Any, groups: int) -> None:
    assert hit_percent(run, "lru", groups, "worst") < 1.0


def test_lru__holds_its_own_while_the_cycle_fits(run: Any) -> None:
    assert hit_percent(run, "lru", 48, "worst") > hit_percent(run, "rlt", 48, "worst")
