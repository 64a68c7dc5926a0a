"""Serving engines have a name and a release, which say which of the scheduler's rules each of them has."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from kvgym.errors import ConfigError, did_you_mean


@dataclass(frozen=True)
class EngineRules:
    """The rules in which the engines differ; `kvgym.engine.serving.scheduler` has them in full.

    Attributes:
        evict_full: an eviction asks for the whole demand of a batch, not for what is short.
        in_full: under ignore_eos admission reserves max_new_tokens in full, not times the new-token ratio.
        mixed_chunk: running requests decode in prefill steps, too.
        blocked: vLLM's scheduler and its cache of blocks (`kvgym.engine.serving.vllm`); the rules above are SGLang's.
        front_free: blocks without a hash are reused first.
        whole_prompt: the whole prompt must fit before its first chunk is admitted.
    """

    evict_full: bool = False
    in_full: bool = True
    mixed_chunk: bool = False
    blocked: bool = False
    front_free: bool = False
    whole_prompt: bool = False


ENGINES = {
    "sglang-0.5.23": EngineRules(),
    "sglang-0.5.23-mixed": EngineRules(mixed_chunk=True),
    "sglang-0.4.6": EngineRules(evict_full=True, in_full=False),
    "sglang-0.4.6-mixed": EngineRules(evict_full=True, in_full=False, mixed_chunk=True),
    "vllm-0.13": EngineRules(blocked=True),
    "vllm-0.33": EngineRules(blocked=True, whole_prompt=True, front_free=True),
}
"""Engine -> its rules. SGLang: schedule_policy.py, schedule_batch.py and mem_cache/common.py of the release; ``mixed``
is the flag --enable-mixed-chunk. Of 0.4.6, which the paper's fork is made from, only the two rules above are taken.
vLLM: v1/core of 0.13.0 and 0.33.0, with asynchronous scheduling off."""


def check_eviction(engines: Iterable[EngineRules], eviction: str) -> None:
    """Check that the eviction policy has a say on one of the workers: vLLM's free list is LRU, and no other.

    Raises:
        ConfigError: every worker's engine is vLLM, and the policy is not lru.
    """
    if eviction != "lru" and all(rules.blocked for rules in engines):
        raise ConfigError(f"vLLM workers evict by their own free list, which is lru; got eviction {eviction!r}")


def engine_rules(name: str) -> EngineRules:
    """Return the rules of the engine `name`.

    Raises:
        ConfigError: there is no such engine.
    """
    if name not in ENGINES:
        known = ", ".join(ENGINES)
        raise ConfigError(f"engine must be one of {known}; got {name!r}{did_you_mean(name, ENGINES)}")
    return ENGINES[name]
