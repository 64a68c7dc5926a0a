"""The paper's unified model: one request at a time costs alpha_cached*hit + alpha_miss*(prompt - hit) + output."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from kvgym.costs.linear import Linear, coefficient
from kvgym.errors import ConfigError

UNBOUNDED_TOKENS = 1 << 40
"""A chunk budget that never cuts a prompt."""


@dataclass(frozen=True)
class Analytic:
    """Cost_ij = cached*h + miss*(|q| - h) + O_ij without batching (paper section 1, arXiv 2601.18999).

    O_ij = fixed_ms + output_ms * (output tokens - 1). A worker serves one request at a time, so its busy time is the
    paper's load P_i and the makespan max_i P_i.
    """

    cached_ms: float = coefficient("alpha_CACHED, per hit token")
    miss_ms: float = coefficient("alpha_MISS, per missed token", 1.0)
    fixed_ms: float = coefficient("constant per request")
    output_ms: float = coefficient("per generated token after the first", 1e-6)

    def __post_init__(self) -> None:
        if self.cached_ms > self.miss_ms:
            raise ConfigError(f"cached_ms must not exceed miss_ms, got {self.cached_ms} > {self.miss_ms}")
        self._linear()

    def _linear(self) -> Linear:
        return Linear(
            p0_ms=self.fixed_ms, p_tok_ms=self.miss_ms - self.cached_ms, p_kv_ms=self.cached_ms, d0_ms=self.output_ms
        )

    def write(self, options: np.ndarray) -> None:
        """Write costs and the one-at-a-time limits into the OPTIONS record `options`, shape (1,)."""
        self._linear().write(options)
        options["max_running"] = 1
        options["chunk"] = options["prefill"] = UNBOUNDED_TOKENS
