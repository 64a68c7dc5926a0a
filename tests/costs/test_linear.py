"""Linear costs: what reaches the engine, what is refused, and what each preset says of itself."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

from kvgym.backends.simulated import engine_options
from kvgym.config.cluster import ClusterConfig
from kvgym.costs import COSTS, resolve_cost
from kvgym.costs.linear import Linear
from kvgym.errors import ConfigError, UnknownNameError

FITTED = {  # preset: (model, system, tensor parallel, type) in data/calibration/aic_linear_fit.csv
    "l40s-llama31-8b": ("Meta-Llama-3.1-8B", "l40s", "1", "bfloat16"),
    "a100-llama31-8b": ("Meta-Llama-3.1-8B", "a100_sxm", "1", "bfloat16"),
    "h100-llama31-8b": ("Meta-Llama-3.1-8B", "h100_sxm", "1", "bfloat16"),
    "h200-llama31-8b": ("Meta-Llama-3.1-8B", "h200_sxm", "1", "bfloat16"),
    "h200-tp4-llama31-70b": ("Meta-Llama-3.1-70B", "h200_sxm", "4", "bfloat16"),
    "h200-tp4-llama31-70b-fp8": ("Meta-Llama-3.1-70B", "h200_sxm", "4", "fp8"),
    "h100-tp4-llama31-70b": ("Meta-Llama-3.1-70B", "h100_sxm", "4", "bfloat16"),
}
"""All presets but l40-llama31-8b, which says that it is an assumption."""


def test_steps__milliseconds_become_seconds() -> None:
    fleet = ClusterConfig(cost={"p0_ms": 1.0, "p_tok_ms": 2.0, "p_quad_ms": 3.0, "p_kv_ms": 4.0, "d0_ms": 5.0,
                                "d_seq_ms": 6.0, "d_kvtok_ms": 7.0, "step_ms": 8.0, "request_ms": 9.0})  # fmt: skip
    options = engine_options(fleet)
    names = ("p0", "p_tok", "p_quad", "p_kv", "d0", "d_seq", "d_kvtok", "step_s", "request_s")
    assert [float(options[name][0]) for name in names] == [n / 1000 for n in range(1, 10)]


def test_resolve__preset_or_fields() -> None:
    assert resolve_cost("l40-llama31-8b").p_tok_ms == 0.12  # type: ignore[attr-defined]
    assert resolve_cost({"model": "linear", "p0_ms": 5, "d0_ms": 7}) == Linear(p0_ms=5.0, d0_ms=7.0)
    assert resolve_cost({"p0_ms": 5, "d0_ms": 7}) == Linear(p0_ms=5.0, d0_ms=7.0)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"p0_ms": -1, "d0_ms": 1}, "p0_ms must be a number >= 0 and <= 1e.09, got -1"),
        ({"p0_ms": float("inf"), "d0_ms": 1}, "p0_ms must be a finite number"),
        ({"p0_ms": float("nan"), "d0_ms": 1}, "p0_ms must be a finite number"),
        ({"p0_ms": 1}, "prefill and decode steps must take time"),
        ({"d0_ms": 1}, "prefill and decode steps must take time"),
        ({"p0": 1}, "unknown key 'p0' in cost"),
        ({"p0_ms": "fast"}, "p0_ms must be a number, got str"),
    ],
)
def test_resolve__refuses(fields: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        resolve_cost(fields)


def test_resolve__names_the_nearest() -> None:
    with pytest.raises(UnknownNameError, match="did you mean 'h100-llama31-8b'"):
        resolve_cost("h100-llama3-8b")
    with pytest.raises(UnknownNameError, match="unknown cost model 'linaer'; did you mean 'linear'"):
        resolve_cost({"model": "linaer"})


PROFILED = {"rtx4090-llama31-8b", "rtxpro6000-llama31-8b"}
"""Fits of layer profiles of whole vLLM steps (tests/scripts/test_fit_layer_profile.py)."""
QWEN = {"h100-tp2-qwen3-32b": "sglang", "h100-tp2-qwen3-32b-vllm": "vllm"}
"""Kernels alone, of these engines."""


@pytest.mark.parametrize("name", list(COSTS))
def test_preset__is_whole(name: str) -> None:
    """Every preset has all kernel terms but the two that may be nought, and the constants of the CPU side."""
    cost = COSTS.load(name)
    assert min(cost.p0_ms, cost.p_tok_ms, cost.p_quad_ms, cost.d0_ms, cost.d_seq_ms, cost.d_kvtok_ms) > 0
    assert cost.step_ms == pytest.approx(0.0 if name in PROFILED | QWEN.keys() else 0.25 * cost.d0_ms, abs=0.001)
    assert cost.request_ms == 20.0


@pytest.mark.parametrize("name", list(FITTED))
def test_preset__is_the_public_fit(data_dir: Path, name: str) -> None:
    """Rounded to two or three digits."""
    with (data_dir / "calibration/aic_linear_fit.csv").open() as file:
        rows = [row for row in csv.DictReader(file) if row["backend"] == "sglang"]
    keys = ("model", "system", "tp", "gemm")
    (row,) = [row for row in rows if tuple(row[key] for key in keys) == FITTED[name]]
    cost = COSTS.load(name)
    for field in ("p0_ms", "p_tok_ms", "p_quad_ms", "p_kv_ms", "d0_ms", "d_seq_ms", "d_kvtok_ms"):
        assert getattr(cost, field) == pytest.approx(float(row[field]), rel=0.025), field


@pytest.mark.parametrize(("name", "backend"), QWEN.items())
def test_preset__qwen_is_the_public_fit(data_dir: Path, name: str, backend: str) -> None:
    with (data_dir / "calibration/aic_linear_fit_qwen3_32b.csv").open() as file:
        (row,) = [r for r in csv.DictReader(file) if (r["system"], r["backend"]) == ("h100_sxm", backend)]
    cost = COSTS.load(name)
    for field in ("p0_ms", "p_tok_ms", "p_quad_ms", "p_kv_ms", "d0_ms", "d_seq_ms", "d_kvtok_ms"):
        assert getattr(cost, field) == pytest.approx(float(row[field])), field


def test_preset__l40_decodes_as_the_l40s() -> None:
    l40, l40s = COSTS.load("l40-llama31-8b"), COSTS.load("l40s-llama31-8b")
    assert (l40.d0_ms, l40.d_seq_ms, l40.d_kvtok_ms) == (l40s.d0_ms, l40s.d_seq_ms, l40s.d_kvtok_ms)
    assert l40s.p_tok_ms < l40.p_tok_ms < 2 * l40s.p_tok_ms
    assert set(FITTED) | {"l40-llama31-8b"} | PROFILED | QWEN.keys() == set(COSTS)
