"""Verdicts on summaries made by hand, whose right answer can be computed on paper."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest

from kvgym.harness.compare.summary import CellSummary, Summary
from kvgym.harness.measure.flags import saturation_flags
from kvgym.harness.measure.statistics import METRICS, spread
from kvgym.harness.report.verdict import plain_verdicts, verdicts

BASE = ("round_robin", "lru")


def cell(pair: tuple[str, str], p50: Sequence[float], seeds: Sequence[int] | None = None, **other: Any) -> CellSummary:
    """Return a cell with these medians; P95 is twice and the mean three times as much unless `other` says so."""
    seeds = tuple(range(len(p50)) if seeds is None else seeds)
    per_metric = {"p50_latency_s": p50, "p95_latency_s": [2 * x for x in p50], "mean_latency_s": [3 * x for x in p50]}
    per_metric |= {"completed": [10.0] * len(p50), "rejected": [0.0] * len(p50), "failed": [0.0] * len(p50)}
    per_metric |= {name: other.pop(name) for name in list(other) if name in METRICS}
    rows = [{name: per_metric[name][i] if name in per_metric else None for name in METRICS} for i in range(len(p50))]
    saturated = saturation_flags({seed: row["saturated"] for seed, row in zip(seeds, rows, strict=True)})
    return CellSummary(
        labels=("load", "fleet", *pair),
        seeds=seeds,
        per_seed=rows,
        metrics={name: spread([row[name] for row in rows]) for name in METRICS},
        ratios={},
        hit_gain=(None, None, None),
        published={},
        timing=[],
        notes={},
        classes={},
        flags=[*other.get("flags", []), *saturated],
        oracle=other.get("oracle", False),
        backend="simulated",
        fleet="{}",
    )


def judge(*cells: CellSummary) -> Any:
    (verdict,) = verdicts(Summary(list(cells), BASE))
    return verdict


def test_verdict__the_best_pair_by_how_much_and_what_is_noise() -> None:
    # Ratios per seed: 0.5 each; 0.8 and 1.25, whose logarithms cancel.
    fast, same = cell(("lbgr", "rlt"), [1.0, 2.0]), cell(("random", "lru"), [1.6, 5.0])
    found = judge(cell(BASE, [2.0, 4.0]), fast, same)
    best = found.best["p50_latency_s"]
    assert (best.pair, best.value_s, best.noise) == (("lbgr", "rlt"), 1.5, [("random", "lru")])
    assert (best.ratio, best.lo, best.hi) == pytest.approx((0.5, 0.5, 0.5))
    assert best.equals == [("random", "lru")], "2 seeds whose ratio to the best is 1.6 and 2.5: t-interval 0.12 to 34"
    first, *_ = found.sentences
    told = "1.5 s, 50 % below round_robin + lru (ratio 0.500, 95 % interval 0.5 to 0.5)"
    assert first == f"Best median latency (P50): lbgr + rlt, {told}. Not told apart from it: random + lru."
    text = (
        "Noise, as the 95 % interval of the ratio to round_robin + lru includes 1: median latency (P50): random + lru;"
    )
    assert any(sentence.startswith(text) for sentence in found.sentences)


def test_verdict__each_metric_has_its_own_winner() -> None:
    base = cell(BASE, [2.0, 2.0, 2.0])
    tail = cell(("a", "lru"), [4.0, 4.0, 4.0], p95_latency_s=[1.0, 1.0, 1.0])
    found = judge(base, tail)
    assert [found.best[metric].pair for metric in found.best] == [BASE, ("a", "lru"), BASE]
    assert found.sentences[:3] == [
        "Best median latency (P50): round_robin + lru, 2 s, which is the baseline.",
        "Best P95: a + lru, 1 s, 75 % below round_robin + lru (ratio 0.250, 95 % interval 0.25 to 0.25).",
        "Best mean latency: round_robin + lru, 6 s, which is the baseline.",
    ]
    assert "No difference to round_robin + lru is noise: over 3 seeds no 95 % interval includes 1." in found.sentences


def test_verdict__a_best_pair_that_may_be_noise() -> None:
    found = judge(cell(BASE, [2.0, 2.0]), cell(("a", "lru"), [1.0, 3.0]))
    assert found.sentences[0].startswith(
        "Best median latency (P50): a + lru, 2 s, 13 % below round_robin + lru (ratio "
    )
    assert ", which may be noise. Not told apart from it: round_robin + lru." in found.sentences[0]


def test_verdict__one_seed_says_nothing_about_noise() -> None:
    found = judge(cell(BASE, [2.0]), cell(("a", "lru"), [1.9]))
    assert found.sentences[0] == (
        "Best median latency (P50): a + lru, 1.9 s, 5.0 % below round_robin + lru (ratio 0.950)."
    )
    assert "One seed: nothing can be said about noise; take more with --seeds 5." in found.sentences
    assert (found.best["p50_latency_s"].lo, found.best["p50_latency_s"].noise) == (None, [])


def test_verdict__policies_that_see_the_future_do_not_win() -> None:
    found = judge(cell(BASE, [2.0, 2.0]), cell(("round_robin", "belady"), [1.0, 1.0], oracle=True))
    assert found.best["p50_latency_s"].pair == BASE


def test_verdict__whether_eviction_matters() -> None:
    base = cell(BASE, [2.0], hit_rate=[0.25])
    assert judge(base, cell(("round_robin", "rlt"), [2.0], hit_rate=[0.255])).sentences[-1] == (
        "Under round_robin the choice of the eviction policy does not matter: all 2 hit 25.0% to 25.5%."
    )
    assert judge(base, cell(("round_robin", "rlt"), [2.0], hit_rate=[0.5])).sentences[-1] == (
        "Under round_robin eviction matters: rlt hits most, 50.0%; lru least, 25.0%."
    )


def test_verdict__what_saturates_and_what_is_flagged() -> None:
    base, other = cell(BASE, [2.0], saturated=[1.0]), cell(("a", "lru"), [1.0], saturated=[0.0], flags=["look at it"])
    found = judge(base, other)
    assert found.saturated == [BASE]
    assert found.sentences[-2:] == [
        "Saturated: round_robin + lru; the backlog grew, so these latencies depend on how long the run is.",
        "Flagged: a + lru: look at it.",
    ]
    assert "Saturated: every pair;" in judge(base, cell(("a", "lru"), [1.0], saturated=[1.0])).sentences[-1]
    kept_up = judge(cell(BASE, [2.0], saturated=[0.0])).sentences
    assert kept_up[-1] == "Nothing saturates: every pair kept up with the arrivals."
    assert not any("aturate" in sentence for sentence in judge(cell(BASE, [2.0])).sentences), "too few requests to say"


def test_verdict__unanswered_requests_are_said() -> None:
    none = cell(("a", "lru"), [1.0], completed=[0.0], rejected=[10.0])
    some = cell(("b", "lru"), [1.0], rejected=[2.0], failed=[1.0])
    found = judge(cell(BASE, [2.0]), none, some)
    assert found.best["p50_latency_s"].pair == ("b", "lru")
    assert found.sentences[-2].startswith("a + lru: no request was answered (10 rejected because they fit no worker, 0")
    assert found.sentences[-1].startswith("Flagged: b + lru left requests unanswered (2 rejected and 1 failed a seed)")


def test_verdict__only_seeds_that_every_pair_has_are_compared() -> None:
    base = cell(BASE, [2.0, 100.0, 4.0])
    found = judge(base, cell(("a", "lru"), [1.0, 2.0], seeds=[0, 2]))
    assert found.seeds == [0, 2]
    assert found.best["p50_latency_s"].ratio == pytest.approx(0.5)
    assert found.sentences[0] == "Runs are missing: compared over the 2 seeds that every pair has; 1 left out."
    nothing = judge(cell(BASE, [2.0], seeds=[0]), cell(("a", "lru"), [1.0], seeds=[1]))
    assert (nothing.seeds, nothing.best) == ([], {})
    assert nothing.sentences == [
        "Runs are missing: no seed was finished by every pair, so there is nothing to compare yet."
    ]


def test_verdict__without_the_baseline() -> None:
    found = judge(cell(("a", "lru"), [2.0, 2.0]), cell(("b", "lru"), [1.0, 1.0]))
    assert found.sentences[0] == "Best median latency (P50): b + lru, 1 s; the baseline has no result to compare with."
    assert not any("oise" in sentence for sentence in found.sentences)


def test_plain_verdicts__are_json() -> None:
    (plain,) = plain_verdicts(Summary([cell(BASE, [2.0, 2.0]), cell(("a", "lru"), [1.0, 1.0])], BASE))
    assert json.loads(json.dumps(plain))["best"]["p95_latency_s"] == {
        "pair": ["a", "lru"],
        "value_s": 2.0,
        "ratio": 0.5,
        "lo": 0.5,
        "hi": 0.5,
        "noise": [],
        "equals": [],
    }
