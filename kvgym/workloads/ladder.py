"""A ladder of rates serves one pool of prompts that repeat, stage after stage, as inference-perf applies load."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from kvgym.config.options import check_options, option
from kvgym.errors import WorkloadError
from kvgym.forest.forest import CHARS_PER_TOKEN, Forest
from kvgym.seeding import stream
from kvgym.types import REQUEST
from kvgym.workloads.base import Workload
from kvgym.workloads.building.sessions import make_workload

MOST_TOKENS, MOST_REQUESTS = 2**28, 100_000_000


@dataclass(frozen=True)
class Ladder:
    """Stages of rising load, each on empty queues and on the caches that the stage before has left.

    - Pool: `groups` system prompts, each with `prompts_per_group` questions. Its order is one permutation of the
      groups, repeated for each question. Request n of every stage takes prompt n modulo the pool, so whole prompts come
      back, in the same order in every stage. Answers are all different and stay in the caches.
    - A stage of (rate, seconds) has exactly rate * seconds requests. ``constant``: exponential gaps, scaled so that
      they fill the stage (that is what the tool calls constant); ``poisson``: each second has a Poisson number of them.
    - The tool starts a stage when the last request of the one before has ended. Here stage k begins at k * `gap_s`,
      which must be longer than any stage takes to drain; nothing happens in between.

    Source: kubernetes-sigs/inference-perf (data type shared_prefix), v0.2.0 to v0.6.0, as the measured runs of llm-d
    used it. Figures per stage: `stage_of`.
    """

    groups: int = option(150, "system prompts", low=1)
    prompts_per_group: int = option(5, "questions to each of them", low=1)
    system_tokens: int = option(6000, "length of a system prompt", "tokens", low=1, high=MOST_TOKENS)
    question_tokens: int = option(1200, "length of a question", "tokens", low=1, high=MOST_TOKENS)
    output_tokens: int = option(1000, "generated tokens per request", "tokens", low=1, high=MOST_TOKENS)
    stages: tuple[tuple[float, float], ...] = option(((3.0, 20.0), (10.0, 20.0)), "list of [requests/s, seconds]")
    arrivals: Literal["constant", "poisson"] = option("poisson", "how the requests of a stage are spread")
    gap_s: float = option(10_000.0, "from the beginning of a stage to that of the next one", "s", above=0)

    def __post_init__(self) -> None:
        check_options(self, WorkloadError)
        counts = [int(rate * seconds) for rate, seconds in self.stages if rate > 0 and seconds > 0]
        if not counts or len(counts) < len(self.stages) or min(counts) < 1 or sum(counts) > MOST_REQUESTS:
            raise WorkloadError(
                "ladder: stages must be [requests/s, seconds] above 0 with at least one request each and at most "
                f"{MOST_REQUESTS:,} in all, got {str(self.stages)[:80]}"
            )
        if max(seconds for _, seconds in self.stages) >= self.gap_s:
            raise WorkloadError(f"ladder: gap_s must exceed every stage's seconds, got {self.gap_s}")

    def generate(self, seed: int, page_size: int = 1) -> Workload:
        """Return the requests of all stages; the seed draws the groups' order and the arrivals."""
        counts = [int(rate * seconds) for rate, seconds in self.stages]
        slot = np.concatenate([np.arange(count) for count in counts])
        pool = self.groups * self.prompts_per_group
        group = stream(seed, "workload").permutation(self.groups)[slot % pool % self.groups]
        question = slot % pool // self.groups

        forest = Forest(chars_per_token=CHARS_PER_TOKEN)
        system = _nodes(forest, np.zeros(self.groups, np.int32), self.system_tokens)
        asked = _nodes(forest, np.repeat(system, self.prompts_per_group), self.question_tokens)
        prompt = asked[group * self.prompts_per_group + question]
        answer = _nodes(forest, prompt, self.output_tokens)

        requests = np.zeros(len(slot), REQUEST)
        requests["prompt_chars"] = forest.nodes["chars_end"][prompt]
        requests["prompt_tokens"] = self.system_tokens + self.question_tokens
        requests["output_tokens"] = self.output_tokens
        requests["session"], requests["next"] = np.arange(len(slot)), -1
        rng = stream(seed, "arrivals")
        times = [self._arrivals(count, *stage, rng) for count, stage in zip(counts, self.stages, strict=True)]
        requests["arrival_s"] = np.concatenate([k * self.gap_s + at for k, at in enumerate(times)])
        forest, moved = forest.paged(page_size)
        requests["prompt_node"], requests["output_node"] = moved[prompt], moved[answer]
        notes = {"source": "ladder of rates", "seed": seed, "stages": len(self.stages)}
        return make_workload("ladder", forest, requests, np.arange(len(slot), dtype=np.int32), notes=notes)

    def _arrivals(self, count: int, rate: float, seconds: float, rng: np.random.Generator) -> np.ndarray:
        """Return the times of a stage's requests from its beginning, ascending, seconds."""
        if self.arrivals == "constant":
            gaps = rng.exponential(size=count)
            return np.cumsum(gaps) * (seconds / gaps.sum())
        found: list[np.ndarray] = []
        second = total = 0
        while total < count:
            gaps = rng.exponential(size=rng.poisson(rate))
            found.append(second + np.cumsum(gaps) / (gaps.sum() or 1.0))
            second, total = second + 1, total + len(gaps)
        return np.concatenate(found)[:count]

    def stage_of(self, arrival_s: np.ndarray) -> np.ndarray:
        """Return the stage of requests by their arrival, int64, same shape."""
        return (arrival_s // self.gap_s).astype(np.int64)


def _nodes(forest: Forest, parents: np.ndarray, tokens: int) -> np.ndarray:
    """Add a child of so many tokens to each of `parents`; return the new nodes."""
    lengths = np.full(len(parents), tokens)
    return forest.add_nodes(parents, lengths, np.rint(lengths * CHARS_PER_TOKEN).astype(np.int64))
