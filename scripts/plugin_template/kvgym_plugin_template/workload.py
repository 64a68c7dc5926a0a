"""Requests ask questions about a few documents, in random order, at a fixed rate."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from kvgym.config.options import check_options, option
from kvgym.errors import WorkloadError
from kvgym.forest.forest import Forest
from kvgym.seeding import stream
from kvgym.types import REQUEST
from kvgym.workloads.base import Workload
from kvgym.workloads.building.arrivals import check_rate, open_loop
from kvgym.workloads.building.sessions import make_workload


@dataclass(frozen=True)
class Documents:
    """Each prompt is a document and a question of its own; the fields are what a YAML file may set."""

    documents: int = option(4, "number of documents", low=1)
    questions: int = option(8, "questions per document", low=1)
    document_tokens: int = option(1000, "length of a document", "tokens", low=1)
    question_tokens: int = option(50, "length of a question", "tokens", low=1)
    output_tokens: int = option(20, "length of an answer", "tokens", low=1)
    rate_rps: float | None = option(2.0, "arrival rate; null: all at once", "1/s")

    def __post_init__(self) -> None:
        check_options(self, WorkloadError)
        check_rate(self.rate_rps, cv=1.0)

    def generate(self, seed: int, page_size: int = 1) -> Workload:
        """Return the requests of `seed`, compiled for `page_size`."""
        document = stream(seed, "workload").permutation(np.repeat(np.arange(self.documents), self.questions))
        count = len(document)
        forest = Forest()  # structure only: nodes that differ in their first token from all their siblings
        top = _add(forest, np.zeros(self.documents, np.int64), self.document_tokens)
        prompt = _add(forest, top[document], self.question_tokens)
        answer = _add(forest, prompt, self.output_tokens)
        forest, node_map = forest.paged(page_size)

        requests = np.zeros(count, REQUEST)
        requests["prompt_node"], requests["output_node"] = node_map[prompt], node_map[answer]
        requests["prompt_tokens"] = self.document_tokens + self.question_tokens
        requests["output_tokens"] = self.output_tokens
        requests["prompt_chars"] = requests["prompt_tokens"] * forest.chars_per_token
        requests["session"] = np.arange(count)
        requests["arrival_s"] = open_loop(count, self.rate_rps, 1.0, stream(seed, "arrivals"))
        return make_workload("documents", forest, requests, notes={"source": "template_workload", "seed": seed})


def _add(forest: Forest, parents: np.ndarray, tokens: int) -> np.ndarray:
    """Append one node of `tokens` tokens below each parent; return the new nodes."""
    lengths = np.full(len(parents), tokens)
    return forest.add_nodes(parents, lengths, np.rint(lengths * forest.chars_per_token).astype(np.int64))
