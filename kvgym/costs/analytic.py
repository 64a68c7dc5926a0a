"""The paper's unified model charges one request alpha_cached*hit + alpha_miss*(prompt - hit) + output."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from kvgym.config.options import check_options
from kvgym.costs.base import StepCosts
from kvgym.costs.linear import Linear, coefficient
from kvgym.errors import ConfigError


@dataclass(frozen=True)
class Analytic:
    """Cost_ij = cached*h + miss*(|q| - h) + O_ij without batching (paper section 1, arXiv 2601.18999).

    O_ij = fixed_ms + output_ms * (output tokens - 1). The cluster must set ``one_at_a_time: true``: a worker then
    serves one request at a time, so its busy time is the paper's load P_i and the makespan max_i P_i.
    """

    one_at_a_time: ClassVar[bool] = True

    cached_ms: float = coefficient("alpha_CACHED, per hit token")
    miss_ms: float = coefficient("alpha_MISS, per missed token", 1.0)
    fixed_ms: float = coefficient("constant per request")
    output_ms: float = coefficient("per generated token after the first", 1e-6)

    def __post_init__(self) -> None:
        check_options(self)
        if self.cached_ms > self.miss_ms:
            raise ConfigError(f"cached_ms must not exceed miss_ms, got {self.cached_ms} > {self.miss_ms}")
        self.steps()

    def steps(self) -> StepCosts:
        """Return the costs as those of linear steps.

        Raises:
            ConfigError: a coefficient is out of range, or a step would take no time.
        """
        return Linear(
            p0_ms=self.fixed_ms, p_tok_ms=self.miss_ms - self.cached_ms, p_kv_ms=self.cached_ms, d0_ms=self.output_ms
        ).steps()
