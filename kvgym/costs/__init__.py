"""Cost models: how many seconds an engine step takes.

`COSTS` names the presets (`presets`, each with its source) and `MODELS` the forms that a config may spell out:
``cost: {model: linear, p0_ms: ..., ...}`` or ``cost: {model: analytic, miss_ms: ...}``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kvgym.config.options import build
from kvgym.config.registry import Registry
from kvgym.costs.base import CostModel

COSTS = Registry(
    "cost preset",
    {
        name: f"kvgym.costs.presets:{name.replace('-', '_').upper()}"
        for name in (
            "l40-llama31-8b",
            "l40s-llama31-8b",
            "a100-llama31-8b",
            "h100-llama31-8b",
            "h200-llama31-8b",
            "h200-tp4-llama31-70b",
            "h200-tp4-llama31-70b-fp8",
            "h100-tp4-llama31-70b",
        )
    },
    group="kvgym.costs",
    check="kvgym.config.contracts:cost_preset",
)
MODELS = Registry(
    "cost model",
    {"linear": "kvgym.costs.linear:Linear", "analytic": "kvgym.costs.analytic:Analytic"},
    group="kvgym.cost_models",
    check="kvgym.config.contracts:cost_model",
)


def resolve_cost(cost: str | Mapping[str, Any]) -> CostModel:
    """Return the cost model of a cluster config: a preset's name, or a map with `model` and its fields.

    Raises:
        UnknownNameError: no such preset or model.
        ConfigError: an unknown field or a value out of range.
    """
    if isinstance(cost, str):
        return COSTS.load(cost)
    fields = dict(cost)
    return build(MODELS.load(str(fields.pop("model", "linear"))), fields, "cost")
