"""Cost models say how many seconds an engine step takes.

`COSTS` names the presets (`presets`, each with its source) and `MODELS` the forms that a config may spell out:
``cost: {model: linear, p0_ms: ..., ...}`` or ``cost: {model: analytic, miss_ms: ...}``, the latter in a cluster that
serves one request at a time.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kvgym.config.cluster import ClusterConfig
from kvgym.config.options import build
from kvgym.config.registry import Registry
from kvgym.costs.base import CostModel, StepCosts
from kvgym.errors import ConfigError

COSTS = Registry(
    "cost preset",
    {
        name: f"kvgym.costs.presets:{name.replace('-', '_').upper()}"
        for name in (
            "rtx4090-llama31-8b",
            "rtxpro6000-llama31-8b",
            "l40-llama31-8b",
            "l40s-llama31-8b",
            "a100-llama31-8b",
            "h100-llama31-8b",
            "h200-llama31-8b",
            "h200-tp4-llama31-70b",
            "h200-tp4-llama31-70b-fp8",
            "h100-tp4-llama31-70b",
            "h100-tp2-qwen3-32b",
            "h100-tp2-qwen3-32b-vllm",
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


def step_costs(cluster: ClusterConfig) -> StepCosts:
    """Return what a step of the cluster's workers costs.

    Raises:
        UnknownNameError: no such preset or model.
        ConfigError: an unknown field, a value out of range, or a model that the cluster's batching contradicts.
    """
    model = resolve_cost(cluster.cost)
    if getattr(model, "one_at_a_time", False) and not cluster.one_at_a_time:
        raise ConfigError(
            f"cost model {type(model).__name__} holds for workers that serve one request at a time; set "
            "one_at_a_time: true in the cluster"
        )
    costs, given = model.steps(), {"request_s": cluster.request_overhead_s, "step_s": cluster.step_overhead_s}
    return costs._replace(**{name: seconds for name, seconds in given.items() if seconds is not None})
