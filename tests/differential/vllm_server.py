"""Drives vLLM's own v1 scheduler and KV cache manager from JSON lines; runs under the oracle's Python, without a GPU.

    PYTHON vllm_server.py FOLDER       FOLDER holds vllm/ of one release (scripts/setup_vllm.sh)

One request per line on stdin, one answer per line on stdout; every request starts from an empty engine:

    {"blocks": 40, "page": 16, "places": 8, "budget": 64, "longest": 0, "costs": {...},
     "requests": [[arrival_s, [token, ...], [answer token, ...]], ...]}

The model is replaced by the given answers and by a virtual clock: a step takes what `Run.seconds` makes of its tokens.
The answer has ``steps``, rows [end_s, free tokens at the end, {request: tokens}], and ``requests``, rows
[hit tokens at the first admission, admitted_s, first_token_s, finish_s, preemptions], ``evicted`` blocks in all.

What vLLM's configuration classes would ask a model folder or a GPU for is stood in by `Anything`.
"""

from __future__ import annotations

import hashlib
import json
import os
import pickle
import sys
from types import SimpleNamespace
from typing import Any

os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")
sys.path.insert(0, sys.argv[1])

import torch
from vllm.config import SchedulerConfig
from vllm.sampling_params import SamplingParams
from vllm.v1.core.kv_cache_utils import get_request_block_hasher, init_none_hash
from vllm.v1.core.sched.scheduler import Scheduler
from vllm.v1.kv_cache_interface import FullAttentionSpec, KVCacheConfig, KVCacheGroupSpec
from vllm.v1.outputs import ModelRunnerOutput
from vllm.v1.request import Request

LONGEST = 1 << 20


class Anything(SimpleNamespace):
    """A configuration in which everything that is not given is None."""

    def __getattr__(self, name: str) -> None:
        if name.startswith("__"):
            raise AttributeError(name)


class Grammar:
    """In place of the structured output manager: no request is constrained."""

    def accept_tokens(self, request: Request, tokens: Any) -> bool:
        return True

    def should_advance(self, request: Request) -> bool:
        return False

    def grammar_init(self, request: Request) -> None:
        pass


def digest(value: Any) -> bytes:
    """Return the hash of a block; which one it is changes no decision."""
    return hashlib.sha256(pickle.dumps(value)).digest()


def make_scheduler(blocks: int, page: int, places: int, budget: int, longest: int) -> Scheduler:
    """Return vLLM's scheduler for a pool of `blocks`, and one more: vLLM never hands out block 0."""
    kind = FullAttentionSpec(block_size=page, num_kv_heads=1, head_size=1, dtype=torch.float16)
    caches = KVCacheConfig(
        num_blocks=blocks + 1, kv_cache_tensors=[], kv_cache_groups=[KVCacheGroupSpec(["layer"], kind)]
    )
    limits = SchedulerConfig(
        max_model_len=LONGEST,
        is_encoder_decoder=False,
        max_num_seqs=places,
        max_num_batched_tokens=budget,
        enable_chunked_prefill=True,
        long_prefill_token_threshold=longest,
        async_scheduling=False,
    )
    model = Anything(
        max_model_len=LONGEST,
        runner_type="generate",
        is_encoder_decoder=False,
        supports_multimodal_inputs=False,
        uses_mrope=False,
        is_diffusion=False,
        is_multimodal_model=False,
        get_num_attention_heads=lambda *_: 1,
    )
    ranks = "pipeline_parallel tensor_parallel data_parallel decode_context_parallel prefill_context_parallel"
    parallel = Anything(**{f"{name}_size": 1 for name in ranks.split()}, data_parallel_rank=0, data_parallel_index=0)
    cache = Anything(num_gpu_blocks=blocks + 1, block_size=page, enable_prefix_caching=True, mamba_cache_mode="none")
    whole = Anything(
        scheduler_config=limits,
        cache_config=cache,
        model_config=model,
        parallel_config=parallel,
        observability_config=Anything(per_request_spec_decode_metrics="none"),
        ec_manager_config=Anything(get_encoder_cache_manager_obj=lambda: None),
        aux_output_config=Anything(enabled=False),
        num_speculative_tokens=0,
        num_lookahead_tokens=0,
        num_prefill_lookahead_tokens=0,
        num_hash_lookahead_tokens=0,
        max_concurrent_batches=1,
        max_in_flight_tokens=budget,
        use_v2_model_runner=False,
        is_mm_encoder_only=False,
    )
    return Scheduler(
        vllm_config=whole,
        kv_cache_config=caches,
        structured_output_manager=Grammar(),
        block_size=page,
        log_stats=True,
    )


class Run:
    """One engine from empty to drained."""

    def __init__(self, asked: dict[str, Any]) -> None:
        limits = {name: asked[name] for name in ("blocks", "page", "places", "budget", "longest")}
        self.scheduler, self.page, self.costs = make_scheduler(**limits), asked["page"], asked["costs"]
        self.hasher = get_request_block_hasher(self.page, digest)
        self.pool = self.scheduler.kv_cache_manager.block_pool
        self.coming = sorted(range(len(asked["requests"])), key=lambda i: asked["requests"][i][0])
        self.requests, self.clock, self.evicted = asked["requests"], 0.0, 0
        self.rows = [[-1, -1.0, -1.0, -1.0, 0] for _ in self.requests]
        self.steps: list[Any] = []
        self._watch()

    def _watch(self) -> None:
        """Count evictions and preemptions where they happen; releases report them differently."""
        evict, preempt = self.pool._maybe_evict_cached_block, self.scheduler._preempt_request

        def evicting(block: Any) -> Any:
            self.evicted += block.block_hash is not None
            return evict(block)

        def preempting(request: Request, *args: Any, **options: Any) -> Any:
            self.rows[int(request.request_id)][4] += 1
            return preempt(request, *args, **options)

        self.pool._maybe_evict_cached_block = evicting
        self.scheduler._preempt_request = preempting

    def _enter(self) -> None:
        while self.coming and self.requests[self.coming[0]][0] <= self.clock:
            i = self.coming.pop(0)
            arrival_s, prompt, answer = self.requests[i]
            params = SamplingParams(max_tokens=len(answer), temperature=0.0, ignore_eos=True)
            newer = {} if "eos_token_id" not in Request.__init__.__code__.co_varnames else {"eos_token_id": None}
            request = Request(
                request_id=str(i),
                prompt_token_ids=list(prompt),
                sampling_params=params,
                pooling_params=None,
                arrival_time=arrival_s,
                block_hasher=self.hasher,
                **newer,
            )
            self.scheduler.add_request(request)

    def seconds(self, before: dict[str, int], tokens: dict[str, int]) -> float:
        """Return what a step takes: `tokens` per request, `before` of them computed."""
        new, decodes, context, attention = 0, 0, 0, 0.0
        for name, n in tokens.items():
            request, c = self.scheduler.requests[name], before[name]
            if n == 1 and request.num_output_tokens > 0 and c + 1 == request.num_tokens:
                decodes, context = decodes + 1, context + c
            else:
                new += n
                attention += self.costs["p_quad"] * n * (c + 0.5 * n)
        weights = self.costs["d0"] + self.costs["d_seq"] * decodes
        kvtok = self.costs["d_kvtok"]
        if new:
            weights = max(weights, self.costs["p0"] + self.costs["p_tok"] * (new + decodes))
            kvtok += self.costs["mix_kvtok"]
        return weights + attention + kvtok * (context + decodes)

    def step(self) -> None:
        plan = self.scheduler.schedule()
        tokens = dict(plan.num_scheduled_tokens)
        before = {name: self.scheduler.requests[name].num_computed_tokens - n for name, n in tokens.items()}
        for fresh in plan.scheduled_new_reqs:
            row = self.rows[int(fresh.req_id)]
            if row[0] < 0:
                row[0], row[1] = fresh.num_computed_tokens, self.clock
        made = [self._sampled(name) for name in tokens]
        if tokens:
            self.clock += self.seconds(before, tokens)
        for name, token in zip(tokens, made, strict=True):
            row = self.rows[int(name)]
            row[2] = self.clock if token and row[2] < 0 else row[2]
        answered = self.scheduler.update_from_output(
            plan,
            ModelRunnerOutput(
                req_ids=list(tokens),
                req_id_to_index={name: i for i, name in enumerate(tokens)},
                sampled_token_ids=made,
                logprobs=None,
                prompt_logprobs_dict={},
                pooler_output=[],
            ),
        )
        for outputs in answered.values():
            for output in outputs.outputs:
                if output.finish_reason is not None:
                    self.rows[int(output.request_id)][3] = self.clock
        if tokens:
            self.steps.append([self.clock, self.pool.get_num_free_blocks() * self.page, tokens])

    def _sampled(self, name: str) -> list[int]:
        request = self.scheduler.requests[name]
        if request.num_computed_tokens < request.num_tokens:
            return []
        return [self.requests[int(name)][2][request.num_output_tokens]]

    def drain(self) -> dict[str, Any]:
        while self.coming or self.scheduler.has_unfinished_requests():
            if not self.scheduler.has_unfinished_requests():
                self.clock = max(self.clock, self.requests[self.coming[0]][0])
            self._enter()
            self.step()
        return {"steps": self.steps, "requests": self.rows, "evicted": self.evicted}


def main() -> None:
    """Answer requests until stdin ends."""
    init_none_hash(digest)
    print(json.dumps("ready"), flush=True)
    for line in sys.stdin:
        print(json.dumps(Run(json.loads(line)).drain()), flush=True)


if __name__ == "__main__":
    main()
