"""Each request gets its token ids; a later turn continues the answer that the server really gave."""

from __future__ import annotations

import numpy as np

from kvgym.workloads.base import Workload


class Prompts:
    """Makes prompts for a live server.

    Args:
        workload: its forest gives the token ids (made up where it knows only lengths or block hashes).
        vocab_size: of the model.
    """

    def __init__(self, workload: Workload, vocab_size: int) -> None:
        self._workload = workload
        self._vocab = vocab_size
        requests = workload.requests
        follows = np.flatnonzero(requests["next"] >= 0)
        self._before = dict(zip(requests["next"][follows].tolist(), follows.tolist(), strict=True))
        self._sent: dict[int, np.ndarray] = {}

    def ids(self, request: int) -> np.ndarray:
        """Return the prompt of `request`, int32 (prompt_tokens,); the turns before it must have been answered.

        A turn that continues its predecessor's answer in the workload begins with what was really sent and answered.
        """
        row = self._workload.requests[request]
        length = int(row["prompt_tokens"])
        ids = self._workload.forest.materialise(int(row["prompt_node"]), length, self._vocab)
        past = self._sent.get(self._before.get(request, -1))
        if past is not None and self._continues(request, len(past)):
            ids = np.concatenate((past, ids[len(past) :]))
        return ids

    def answered(self, request: int, prompt: np.ndarray, output_ids: list[int]) -> None:
        """Take note of what was sent and answered, if a later turn continues it."""
        if self._workload.requests["next"][request] >= 0 and self._workload.requests["output_node"][request] >= 0:
            self._sent[request] = np.concatenate((prompt, np.array(output_ids, np.int32)))
        self._sent.pop(self._before.get(request, -1), None)

    def _continues(self, request: int, past_tokens: int) -> bool:
        """Whether the prompt of `request` has its predecessor's prompt and answer as its beginning."""
        requests, forest = self._workload.requests, self._workload.forest
        if past_tokens > requests["prompt_tokens"][request]:
            return False
        end = int(requests["output_node"][self._before[request]])
        return end == 0 or end in forest.path(int(requests["prompt_node"][request]))
