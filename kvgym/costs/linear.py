"""Linear step times grow with new, cached and squared tokens in prefill, with batch size and context in decode."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any

from kvgym.config.options import check_options, option
from kvgym.costs.base import StepCosts
from kvgym.errors import ConfigError

_LEAST_MS, _MOST_MS = 1e-9, 1e9  # a step that takes no time at all, or makes all others vanish in rounding


def coefficient(help: str, default: float = 0.0) -> Any:
    """Return a dataclass field for a coefficient in milliseconds."""
    return option(default, help, "ms", low=0, high=_MOST_MS)


@dataclass(frozen=True)
class Linear:
    """Milliseconds per engine step, n computed and c cached tokens per sequence, B sequences.

    prefill = p0 + sum(p_tok*n + p_quad*n*(c + n/2) + p_kv*(c + n)); decode = d0 + d_seq*B + d_kvtok*context; both in
    one step: see `StepCosts`. Each step takes `step_ms` more (CPU), each request reaches the worker `request_ms` after
    it was sent (HTTP, tokenising). Form and fits: see `kvgym.costs.presets`.
    """

    p0_ms: float = coefficient("prefill step, constant")
    p_tok_ms: float = coefficient("per computed token")
    p_quad_ms: float = coefficient("per computed token and token of context")
    p_kv_ms: float = coefficient("per token of context in a prefill")
    d0_ms: float = coefficient("decode step, constant")
    d_seq_ms: float = coefficient("per sequence of a decode step")
    d_kvtok_ms: float = coefficient("per token of context in a decode step")
    mix_kvtok_ms: float = coefficient(
        "per token of the decodes' context in a step that also prefills, beside d_kvtok_ms"
    )
    step_ms: float = coefficient("CPU time added to every step")
    request_ms: float = coefficient("from the router to the worker's queue")

    def __post_init__(self) -> None:
        check_options(self)
        prefill_ms = self.p0_ms + self.p_tok_ms + self.p_kv_ms + self.step_ms
        if min(prefill_ms, self.d0_ms + self.d_seq_ms + self.step_ms) < _LEAST_MS:
            raise ConfigError("prefill and decode steps must take time: give p0_ms or p_tok_ms, and d0_ms or d_seq_ms")

    def steps(self) -> StepCosts:
        """Return the coefficients, in seconds."""
        return StepCosts(*(getattr(self, spec.name) / 1000.0 for spec in dataclasses.fields(self)))
