"""The simulator against measured runs that nobody fitted: how near it comes, and who wins."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from kvgym.errors import UnknownNameError
from kvgym.validation import RUNS, rtx4090
from kvgym.validation.base import Figure, kendall_tau, rank_agreement, wrong_winners
from kvgym.validation.validation_report import markdown, summary, validate


@pytest.fixture(scope="module")
def found(data_dir: Path) -> dict[str, list[Figure]]:
    return validate()


@pytest.mark.parametrize("engine", ["vllm-0.13", "vllm-0.33"])
def test_rtx4090__every_figure_within_five_percent(data_dir: Path, engine: str) -> None:
    errors = np.array(rtx4090.simulated(engine)) / rtx4090.measured() - 1
    assert np.abs(errors[:5]).max() <= 0.05 and abs(errors[5]) <= 0.03, errors


def test_vllm_counters__exact(found: dict[str, list[Figure]]) -> None:
    assert all(figure.error == 0 for figure in found["vllm_counters"])


@pytest.mark.parametrize("run", ["llmd_sglang", "llmd_vllm"])
def test_fleets__the_right_winner_and_throughput(found: dict[str, list[Figure]], run: str) -> None:
    figures = found[run]
    assert not wrong_winners(figures, "TTFT P90, s") and not wrong_winners(figures, "output, tokens/s")
    throughput = [abs(figure.error) for figure in figures if figure.name == "output, tokens/s"]
    assert len(throughput) == 32 and np.median(throughput) <= 0.10
    assert rank_agreement(figures, "output, tokens/s") >= 0.75


def test_run37__collapses_of_random_and_load_and_throughput_of_all_arms(found: dict[str, list[Figure]]) -> None:
    """Known to be wrong: default and precise come out alike, where default was 2 to 150 times slower to a token."""
    figures = found["llmd_37"]
    swapped = {pair.partition(" at")[0] for pair in wrong_winners(figures, "output, tokens/s")}
    assert swapped <= {"default against precise", "random against load"}
    assert np.median([abs(f.error) for f in figures if f.name == "output, tokens/s"]) <= 0.10
    assert rank_agreement(figures, "output, tokens/s") >= 0.8
    ttft = {(f.arm, f.load): f.simulated for f in figures if f.name == "TTFT P90, s"}
    assert all(ttft[arm, 5] > 10 for arm in ("random", "load")) and ttft["precise", 20] < 1


@pytest.mark.parametrize("run", ["llmd_sglang", "llmd_vllm"])
def test_fleets__random_routing_collapses_where_it_did(found: dict[str, list[Figure]], run: str) -> None:
    """Between 15 and 20 requests/s TTFT P90 jumps by a factor of twenty."""
    ttft = {f.load: f.simulated for f in found[run] if f.arm == "k8s-service" and f.name == "TTFT P90, s"}
    assert ttft[15] < 2 and ttft[20] > 25


def test_page__is_what_the_runs_give(found: dict[str, list[Figure]], repo_root: Path) -> None:
    """`kvgym validate --out docs/validation.md` writes it anew."""
    assert markdown(found) == (repo_root / "docs/validation.md").read_text(encoding="utf-8")
    assert {row["run"] for row in summary(found)} == set(RUNS)


def test_validate__unknown_run() -> None:
    with pytest.raises(UnknownNameError, match="did you mean 'rtx4090'"):
        validate(["rtx409"])


def test_kendall_tau__by_hand() -> None:
    """Of the six pairs of (1, 2, 3, 4) and (1, 3, 2, 4) one is swapped; a tie counts half."""
    assert kendall_tau(np.array([1, 2, 3, 4]), np.array([1, 3, 2, 4])) == pytest.approx(4 / 6)
    assert kendall_tau(np.array([1, 2, 2]), np.array([3, 2, 1])) == pytest.approx(-2 / np.sqrt(2 * 3))


def test_wrong_winners__only_where_the_difference_counts() -> None:
    figures = [Figure("a", 1, "x", 1.0, 2.0), Figure("b", 1, "x", 1.3, 1.0)]
    assert wrong_winners(figures, "x") == ["a against b at 1/s"]
    assert not wrong_winners([figures[0], Figure("b", 1, "x", 1.1, 1.0)], "x")
