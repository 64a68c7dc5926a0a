"""One's own traffic is served: the requests of a log that `kvgym import` has turned into a workload file."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from kvgym.config.options import check_options, option
from kvgym.errors import WorkloadError
from kvgym.forest.forest import Forest
from kvgym.logs import columnar
from kvgym.logs.importing import as_workload_file
from kvgym.logs.rows import locate
from kvgym.seeding import stream
from kvgym.types import REQUEST
from kvgym.workloads.base import Workload
from kvgym.workloads.building.arrivals import check_rate, open_loop, spread_ticks
from kvgym.workloads.building.sessions import link_turns, make_workload


@dataclass(frozen=True)
class Imported:
    """Requests of a workload file, compiled for any page size.

    Sharing is known token by token. Requests come at their recorded times unless `rate_rps` or `clients` is given;
    `release` says whether the later turns of a session do so too, or follow the answer before them.
    """

    path: str = field(metadata={"help": "workload file made by `kvgym import`, or a log that it takes"})
    rate_rps: float | None = option(None, "session starts per second instead of recorded ones", "1/s")
    cv: float = option(1.0, "coefficient of variation of the gaps with rate_rps; 1: Poisson")
    clients: int = option(0, "closed-loop clients, each with one session; 0: open loop", low=0)
    release: Literal["auto", "think", "recorded"] = option(
        "auto", "turns follow the answer before, or come at their recorded times; auto: think where the log tells it"
    )
    think_s: float = option(0.0, "think time where the log does not tell it", "s", low=0)
    time_scale: float = option(1.0, "factor on recorded times; 2: half the rate", above=0)
    tick_s: float | None = option(
        None, "stamps are spread over ticks of this width; null: as the log needs it", "s", low=0
    )
    history: Literal["generated", "recorded"] = option(
        "generated", "whether the next turn continues the answer that was really generated"
    )
    output_tokens: int = option(128, "answer length where the log does not tell it", "tokens", low=1)
    limit: int | None = option(None, "keep the first so many requests", low=1)
    max_context_tokens: int | None = option(None, "leave out requests with a longer prompt + output", "tokens", low=1)

    def __post_init__(self) -> None:
        check_options(self, WorkloadError)
        check_rate(self.rate_rps, self.cv)
        if self.release == "recorded" and (self.clients or self.rate_rps is not None):
            raise WorkloadError("imported: release: recorded takes the log's times; leave out clients and rate_rps")

    def generate(self, seed: int, page_size: int = 1) -> Workload:
        """Return the requests compiled for `page_size`; only arrivals depend on the seed."""
        file = as_workload_file(locate(self.path))
        columns, facts = columnar.read(file, self.limit)
        kept = self._kept(columns, file.name)
        forest, nodes = _forest(columns, float(facts["chars_per_token"]), page_size)
        requests = np.zeros(len(kept), REQUEST)
        for name in ("prompt_tokens", "max_new_tokens", "session", "priority", "tenant"):
            requests[name] = columns[name][kept]
        prompt, answer = columns["prompt_node"][kept], columns["output_node"][kept]
        requests["output_tokens"] = self._outputs(columns)[kept]
        requests["prompt_node"] = nodes[prompt]
        requests["output_node"] = -1
        if self.history == "generated":
            requests["output_node"] = np.where(answer < 0, -1, nodes[answer])
        requests["prompt_chars"] = (requests["prompt_tokens"] * forest.chars_per_token).astype(np.int64)
        heads = self._release(requests, columns, kept, seed, facts)
        notes = {**facts, "seed": seed, "left_out_too_long": len(columns["session"]) - len(kept)}
        return make_workload("imported", forest, requests, heads, clients=self.clients, notes=notes)

    def _outputs(self, columns: dict[str, np.ndarray]) -> np.ndarray:
        """Return the answers' lengths; where the log has none, `output_tokens` or what the client allowed."""
        asked = columns["max_new_tokens"]
        guess = np.where(asked > 0, np.minimum(asked, self.output_tokens), self.output_tokens)
        return np.where(columns["output_tokens"] > 0, columns["output_tokens"], guess)

    def _kept(self, columns: dict[str, np.ndarray], name: str) -> np.ndarray:
        """Return the rows that are short enough, in the order of their arrival."""
        total = columns["prompt_tokens"].astype(np.int64) + self._outputs(columns)
        kept = np.flatnonzero(total <= (self.max_context_tokens or np.inf))
        if not len(kept):
            raise WorkloadError(
                f"{name}: no request is left ({len(total)} exceed max_context_tokens = {self.max_context_tokens})"
            )
        return kept[np.argsort(columns["arrival_s"][kept], kind="stable")]

    def _release(
        self, requests: np.ndarray, columns: dict[str, np.ndarray], kept: np.ndarray, seed: int, facts: dict[str, Any]
    ) -> np.ndarray | None:
        """Fill in when requests come; return all of them as heads if none waits for another, else None."""
        stamps, think_s = columns["arrival_s"][kept], columns["think_s"][kept]
        rng = stream(seed, "arrivals")
        _, first, inverse = np.unique(requests["session"], return_index=True, return_inverse=True)
        if self.rate_rps is not None:
            starts = np.empty(len(first))
            starts[np.argsort(first)] = open_loop(len(first), self.rate_rps, self.cv, rng)
            requests["arrival_s"] = starts[inverse]
        elif not self.clients:
            if np.isnan(stamps).any():
                raise WorkloadError(f"{facts['source']} has no timestamps; give rate_rps or clients")
            tick_s = float(facts["tick_s"]) if self.tick_s is None else self.tick_s
            requests["arrival_s"] = spread_ticks(stamps, tick_s, rng) * self.time_scale
            untold = np.isnan(np.delete(think_s, first)).any()  # think times of later turns
            if self.release == "recorded" or (self.release == "auto" and untold):
                arrival_s = requests["arrival_s"].copy()
                link_turns(requests)
                requests["next"], requests["arrival_s"] = -1, arrival_s
                return np.arange(len(requests), dtype=np.int32)
        requests["think_s"] = np.where(np.isnan(think_s), self.think_s, think_s)
        return None


def _forest(columns: dict[str, np.ndarray], chars_per_token: float, page_size: int) -> tuple[Forest, np.ndarray]:
    """Return the forest for `page_size`, and which of its nodes each node of the file has become."""
    ends = np.concatenate(([0], columns["node_end"])).astype(np.int64)
    parents = columns["node_parent"]
    chars = (ends * chars_per_token).astype(np.int64)
    forest = Forest(1, 1, chars_per_token)
    forest.add_nodes(parents, ends[1:] - ends[parents], chars[1:] - chars[parents])
    return forest.paged(page_size)
