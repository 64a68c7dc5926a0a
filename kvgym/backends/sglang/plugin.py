"""Registers kvgym's eviction policies with SGLang: ``--radix-cache-backend kvgym-rlt`` in an unmodified server.

SGLang (0.5.23) calls `register` through the entry point group ``sglang.srt.plugins`` in each of its processes, because
kvgym is installed beside it. Every eviction policy that kvgym knows becomes a cache backend named ``kvgym-NAME``, and
``kvgym-learned`` evicts by the trained scorer in the file that the environment variable KVGYM_EVICTION_FILE names.
Whether a server that was started elsewhere has the file that a run asks for is not checked, only that it has one.
"""

from __future__ import annotations

import os
from typing import Any

from kvgym.config.names import table
from kvgym.errors import ConfigError

PREFIX = "kvgym-"
"""What precedes a policy's name in SGLang's ``--radix-cache-backend``."""
LEARNED = "learned"
"""Name for the policy in a file."""
FILE_VARIABLE = "KVGYM_EVICTION_FILE"
"""Environment variable that names the file."""


def register() -> None:
    """Make every eviction policy a radix cache backend of SGLang; nothing is compiled before one is chosen."""
    from sglang.srt.mem_cache.registry import register_radix_cache_backend, registered_radix_cache_backends

    for name in (*table("eviction"), LEARNED):
        if PREFIX + name not in registered_radix_cache_backends():
            register_radix_cache_backend(PREFIX + name, _factory(name))


def _factory(name: str) -> Any:
    def build(context: Any) -> Any:
        from kvgym.backends.sglang.policy_cache import PolicyRadixCache

        if context.is_hybrid_swa or context.is_hybrid_ssm or context.enable_hierarchical_cache:
            raise ValueError(
                f"{PREFIX}{name} keeps one full-attention KV pool on the device; this model or these flags ask for "
                "sliding windows, state-space layers or a hierarchical cache: leave --radix-cache-backend out"
            )
        # All ranks of a tensor-parallel worker share the server's seed, so they evict the same tokens.
        return PolicyRadixCache(context.params, policy_name(name), context.server_args.random_seed or 0)

    return build


def policy_name(name: str) -> str:
    """Return the policy that the backend ``kvgym-name`` evicts by: `name` itself, or the file for LEARNED.

    Raises:
        ConfigError: no file is named.
    """
    if name != LEARNED:
        return name
    file = os.environ.get(FILE_VARIABLE, "")
    if not file:
        raise ConfigError(
            f"{PREFIX}{LEARNED} evicts by a trained scorer: set {FILE_VARIABLE} to the .json file that "
            "scripts/train_eviction.py wrote"
        )
    return file


def short_name(eviction: str) -> str:
    """Return what follows the prefix in the backend of an eviction policy: its name, or LEARNED for a file's path."""
    return LEARNED if eviction.endswith(".json") else eviction
