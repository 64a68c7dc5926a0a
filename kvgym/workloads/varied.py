"""A workload's fields change from episode to episode: a rate between two values, an order out of several."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from kvgym.config.loader import load_config, resolve_workload
from kvgym.errors import WorkloadError
from kvgym.seeding import stream
from kvgym.workloads.base import Workload, WorkloadSource


@dataclass(frozen=True)
class _Between:
    """Any number from `low` to `high`, evenly."""

    low: float
    high: float

    def __post_init__(self) -> None:
        if self.low > self.high:
            raise WorkloadError(f"low must not be above high, got {self.low} and {self.high}")


@dataclass(frozen=True)
class Varied:
    """Every seed draws the fields in `vary` anew and is an episode of the workload `of` with these values.

    A field is given as ``{low: 8, high: 14}`` or as a list of values. The draws have a stream of their own. A router
    that is trained on one rate and one order learns just these (configs/train/gsp_ppo.yaml).
    """

    of: str | dict[str, Any] = field(
        metadata={"help": "workload: a preset's name, or a map with `source` and its fields"}
    )
    vary: dict[str, _Between | tuple[Any, ...]] = field(metadata={"help": "field -> {low, high}, or a list of values"})

    def __post_init__(self) -> None:
        if not self.vary:
            raise WorkloadError("varied: vary must name at least one field of the workload, as in {rate_rps: [8, 12]}")
        for name, values in self.vary.items():
            if not values:
                raise WorkloadError(f"varied: the list of values for {name!r} is empty")
            for value in (values.low, values.high) if isinstance(values, _Between) else values:
                self._source({name: value})  # a wrong field or value is reported now, not in some later episode

    @property
    def path(self) -> str | None:
        """The file that the workload reads, if it reads one."""
        return getattr(self._source({}), "path", None)

    @property
    def tokenizer(self) -> str | None:
        """The tokenizer file of the workload, if it has one."""
        return getattr(self._source({}), "tokenizer", None)

    def generate(self, seed: int, page_size: int = 1) -> Workload:
        """Return the episode of `seed`; `notes["varied"]` holds the values that it drew."""
        rng = stream(seed, "varied")
        drawn = {}
        for name, values in sorted(self.vary.items()):
            if isinstance(values, _Between):
                drawn[name] = float(rng.uniform(values.low, values.high))
            else:
                drawn[name] = values[int(rng.integers(len(values)))]
        workload = self._source(drawn).generate(seed, page_size)
        workload.notes["varied"] = drawn
        return workload

    def _source(self, fields: dict[str, Any]) -> WorkloadSource:
        return resolve_workload({**load_config("workloads", self.of), **fields})
