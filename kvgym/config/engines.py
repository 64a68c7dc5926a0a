"""Serving engines by name and release, and which of the scheduler's rules each of them has."""

from __future__ import annotations

from dataclasses import dataclass

from kvgym.errors import ConfigError, did_you_mean


@dataclass(frozen=True)
class EngineRules:
    """The rules in which the engines differ; `kvgym.engine.serving.scheduler` has them in full.

    Attributes:
        evict_full: an eviction asks for the whole demand of a batch, not for what is short.
        in_full: under ignore_eos admission reserves max_new_tokens in full, not times the new-token ratio.
        mixed_chunk: running requests decode in prefill steps, too.
    """

    evict_full: bool = False
    in_full: bool = True
    mixed_chunk: bool = False


ENGINES = {
    "sglang-0.5.23": EngineRules(),
    "sglang-0.5.23-mixed": EngineRules(mixed_chunk=True),
    "sglang-0.4.6": EngineRules(evict_full=True, in_full=False),
    "sglang-0.4.6-mixed": EngineRules(evict_full=True, in_full=False, mixed_chunk=True),
}
"""Engine -> its rules. SGLang: schedule_policy.py, schedule_batch.py and mem_cache/common.py of the release; ``mixed``
is the flag --enable-mixed-chunk. Of 0.4.6, which the paper's fork is made from, only the two rules above are taken."""


def engine_rules(name: str) -> EngineRules:
    """Return the rules of the engine `name`.

    Raises:
        ConfigError: there is no such engine.
    """
    if name not in ENGINES:
        known = ", ".join(ENGINES)
        raise ConfigError(f"engine must be one of {known}; got {name!r}{did_you_mean(name, ENGINES)}")
    return ENGINES[name]
