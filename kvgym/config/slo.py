"""A service level objective limits TTFT, time per output token and latency; requests keep it or do not."""

from __future__ import annotations

from dataclasses import dataclass, fields

import numpy as np

from kvgym.config.options import check_options, option
from kvgym.errors import ConfigError
from kvgym.types import DONE


@dataclass(frozen=True)
class SLO:
    """Limits that a request keeps if each of its times is at most that long (formulas in `kvgym.types`).

    Raises:
        ConfigError: no limit is given, or one is not above 0.
    """

    ttft_s: float | None = option(None, "longest time to first token", "s", above=0)
    tpot_s: float | None = option(None, "longest time per output token; answers of one token have none", "s", above=0)
    latency_s: float | None = option(None, "longest end-to-end latency", "s", above=0)

    def __post_init__(self) -> None:
        limits = {spec.name: getattr(self, spec.name) for spec in fields(self)}
        if all(limit is None for limit in limits.values()):
            raise ConfigError(f"a service level objective needs at least one limit of {', '.join(limits)}")
        check_options(self)

    def met(self, records: np.ndarray) -> np.ndarray:
        """Return which RECORD rows were answered within every limit, bool (rows,)."""
        good = records["status"] == DONE
        if self.ttft_s is not None:
            good &= records["first_token_s"] - records["arrival_s"] <= self.ttft_s
        if self.tpot_s is not None:
            more = records["output_tokens"] - 1
            tpot_s = (records["finish_s"] - records["first_token_s"]) / np.maximum(more, 1)
            good &= (more < 1) | (tpot_s <= self.tpot_s)
        if self.latency_s is not None:
            good &= records["finish_s"] - records["arrival_s"] <= self.latency_s
        return good
