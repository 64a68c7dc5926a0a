"""A worker by its hardware: from GPU, model, parallelism and number format to KV tokens and a cost, with the sources.

Effective rates are what measured kernel tables reach (data/calibration/aic_linear_fit.csv: Llama-3.1-8B on one GPU,
prefill for TFLOP/s, decode for GB/s; RTX cards: the layer profiles of the cost presets). A card that no table measured
is marked as assumed: 85 % of its data sheet's dense bf16 rate and 80 % of its bandwidth, an L40 the L40S's shares.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from kvgym.config.options import build, check_options, option
from kvgym.errors import ConfigError, did_you_mean


class Gpu(NamedTuple):
    """Usable memory (GiB), effective dense bf16 rate (TFLOP/s) and bandwidth (GB/s), and whether these are assumed."""

    memory_gib: float
    tflops: float
    gb_s: float
    assumed: bool = False


class Model(NamedTuple):
    """A model's parameters (billions; those that one token uses, too), layers, attention width and KV width."""

    parameters: float
    active: float
    layers: int
    attention: int  # query heads x head size
    kv: int  # key heads x head size


GPUS = {
    "rtx4090": Gpu(23.6, 181.0, 946.0),
    "rtxpro6000": Gpu(94.9, 450.0, 1451.0),
    "a6000": Gpu(47.4, 132.0, 614.0, assumed=True),
    "l40": Gpu(44.25, 114.0, 717.0, assumed=True),
    "l40s": Gpu(44.25, 228.0, 717.0),
    "a100": Gpu(79.1, 281.0, 1361.0),
    "h100": Gpu(79.1, 828.0, 2498.0),
    "h200": Gpu(139.8, 803.0, 3403.0),
}
"""GPU -> what it has and reaches."""
MODELS = {
    "llama-3.1-8b": Model(8.03, 8.03, 32, 4096, 1024),
    "llama-3.1-70b": Model(70.6, 70.6, 80, 8192, 1024),
    "qwen3-32b": Model(32.8, 32.8, 64, 8192, 1024),
    "mixtral-8x7b": Model(46.7, 12.9, 32, 4096, 1024),
}
"""Model -> its sizes, from its config.json. Mixtral: two of eight experts work on a token, but a batch of eight
sequences reads nine tenths of all weights, so a decode step reads them all."""
MEASURED = {
    ("rtx4090", "llama-3.1-8b", 1, "bf16"): "rtx4090-llama31-8b",
    ("rtxpro6000", "llama-3.1-8b", 1, "bf16"): "rtxpro6000-llama31-8b",
    ("l40s", "llama-3.1-8b", 1, "bf16"): "l40s-llama31-8b",
    ("a100", "llama-3.1-8b", 1, "bf16"): "a100-llama31-8b",
    ("h100", "llama-3.1-8b", 1, "bf16"): "h100-llama31-8b",
    ("h200", "llama-3.1-8b", 1, "bf16"): "h200-llama31-8b",
    ("h200", "llama-3.1-70b", 4, "bf16"): "h200-tp4-llama31-70b",
    ("h200", "llama-3.1-70b", 4, "fp8"): "h200-tp4-llama31-70b-fp8",
    ("h100", "llama-3.1-70b", 4, "bf16"): "h100-tp4-llama31-70b",
    ("h100", "qwen3-32b", 2, "bf16"): "h100-tp2-qwen3-32b",
}
"""(GPU, model, tensor parallelism, format) -> the cost preset that was measured for it."""

_COMPUTE_PER_DOUBLING, _MEMORY_PER_DOUBLING = 0.83, 0.96
"""What each doubling of tensor parallelism leaves of the rates: all-reduces (fits of 70B TP4 and Qwen3-32B TP2)."""
_FP8_COMPUTE, _FP8_MEMORY = 1.4, 0.67
"""Rates in fp8 over those in bf16 (fits of 70B TP4 on H200): kernels win less than the format does."""
_ATTENTION, _KV_READ, _PREFILL_READ = 0.73, 1.15, 0.75
"""Attention's rate over the dense layers' in a prefill; the KV cache's reading rate and a prefill step's constant over
a decode's (the same fits)."""
_SEQUENCE_TFLOP_MS = 9.3
"""A sequence's share of a decode step, ms x TFLOP/s for eight billion parameters (the same fits)."""
_REQUEST_MS = 20.0
_FRACTION, _RESERVE_GIB = {"sglang": 0.88, "vllm": 0.9}, {"sglang": 0.0, "vllm": 3.0}
"""Share of the memory that an engine takes by default, and what it needs of that beside weights and KV cache."""
_GIB = 2.0**30


@dataclass(frozen=True)
class HardwareConfig:
    """The `hardware` of a cluster: KV tokens and cost of each worker follow from it, unless the cluster gives them."""

    gpu: str = option("l40", f"one of {', '.join(GPUS)}")
    model: str = option("llama-3.1-8b", f"one of {', '.join(MODELS)}")
    tensor_parallel: int = option(1, "GPUs of a worker", low=1, high=64)
    dtype: str = option("bf16", "number format of the weights: bf16 or fp8; the KV cache is bf16")
    memory_fraction: float | None = option(
        None, "share of the memory for weights and KV cache; none: the engine's default", above=0, high=1
    )

    def __post_init__(self) -> None:
        check_options(self)
        for name, known in (("gpu", GPUS), ("model", MODELS), ("dtype", ("bf16", "fp8"))):
            if (given := getattr(self, name)) not in known:
                raise ConfigError(f"hardware.{name} must be one of {', '.join(known)}; got {given!r}"
                                  f"{did_you_mean(str(given), known)}")  # fmt: skip

    def kv_tokens(self, engine: str) -> int:
        """Return the tokens that fit beside the weights.

        Raises:
            ConfigError: the weights leave no room.
        """
        gpu, model, family = GPUS[self.gpu], MODELS[self.model], engine.partition("-")[0]
        fraction = _FRACTION[family] if self.memory_fraction is None else self.memory_fraction
        weights = model.parameters * 1e9 * self._weight_bytes / self.tensor_parallel
        room = (fraction * gpu.memory_gib - _RESERVE_GIB[family]) * _GIB - weights
        per_token = 2 * 2 * model.layers * model.kv / self.tensor_parallel  # keys and values, two bytes each
        if room < per_token * 1024:
            raise ConfigError(
                f"{self.model} in {self.dtype} on {self.tensor_parallel} x {self.gpu}: the weights take "
                f"{weights / _GIB:.1f} of {fraction * gpu.memory_gib:.1f} GiB and leave no room for a KV cache; take "
                "more GPUs (tensor_parallel), fp8, or a larger memory_fraction"
            )
        return int(room / per_token)

    def cost(self) -> str | dict[str, float]:
        """Return the measured preset, or the roofline's coefficients in milliseconds (see `roofline_ms`)."""
        return MEASURED.get((self.gpu, self.model, self.tensor_parallel, self.dtype)) or self.roofline_ms()

    def roofline_ms(self) -> dict[str, float]:
        """Return coefficients of `kvgym.costs.linear.Linear` from the rates: computing per token, reading per step."""
        gpu, model, tp = GPUS[self.gpu], MODELS[self.model], self.tensor_parallel
        fp8 = self.dtype == "fp8"
        compute = gpu.tflops * _COMPUTE_PER_DOUBLING ** math.log2(tp) * (_FP8_COMPUTE if fp8 else 1.0)
        memory = gpu.gb_s * _MEMORY_PER_DOUBLING ** math.log2(tp) * (_FP8_MEMORY if fp8 else 1.0)
        bf16_memory = gpu.gb_s * _MEMORY_PER_DOUBLING ** math.log2(tp)
        attention = 4.0 * model.layers * model.attention / tp  # flops of a token and a token of its context
        d0 = model.parameters * self._weight_bytes / tp / memory * 1e3
        found = {
            "p0_ms": _PREFILL_READ * d0,
            "p_tok_ms": 2.0 * model.active / tp / compute,
            "p_quad_ms": attention / (gpu.tflops * _ATTENTION) * 1e-9,
            "d0_ms": d0,
            "d_seq_ms": _SEQUENCE_TFLOP_MS * model.active / 8.0 / tp / compute,
            "d_kvtok_ms": 4.0 * model.layers * model.kv / tp / (bf16_memory * _KV_READ) * 1e-6,
            "request_ms": _REQUEST_MS,
        }
        return {name: float(f"{value:.6g}") for name, value in found.items()}

    @property
    def _weight_bytes(self) -> float:
        return 1.0 if self.dtype == "fp8" else 2.0


def with_hardware(cluster: Mapping[str, Any]) -> dict[str, Any]:
    """Return a cluster's plain map with `hardware` turned into `capacity_tokens` and `cost`, unless it has these.

    Workers of unequal engines get the smallest pool of theirs.
    """
    plain = dict(cluster)
    given = plain.pop("hardware", None)
    if given is None:
        return plain
    if not isinstance(given, Mapping):
        raise ConfigError(f"hardware must be a map, as in {{gpu: h100, model: llama-3.1-8b}}; got {given!r}")
    worker = build(HardwareConfig, dict(given), "cluster: hardware")
    engines = plain.get("engine", "sglang")
    names = [engines] if isinstance(engines, str) else list(engines)
    families = {name: name for name in names if isinstance(name, str) and name.partition("-")[0] in _FRACTION}
    tokens = min((worker.kv_tokens(name) for name in families), default=0)
    if tokens:
        plain.setdefault("capacity_tokens", tokens)
    plain.setdefault("cost", worker.cost())
    return plain
