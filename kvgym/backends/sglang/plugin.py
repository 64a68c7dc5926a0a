"""Registers kvgym's eviction policies with SGLang: ``--radix-cache-backend kvgym-rlt`` in an unmodified server.

SGLang (0.5.23) calls `register` through the entry point group ``sglang.srt.plugins`` in each of its processes, because
kvgym is installed beside it. Every eviction policy that kvgym knows becomes a cache backend named ``kvgym-NAME``.
"""

from __future__ import annotations

from typing import Any

from kvgym.tables import table

PREFIX = "kvgym-"
"""What precedes a policy's name in SGLang's ``--radix-cache-backend``."""


def register() -> None:
    """Make every eviction policy a radix cache backend of SGLang; nothing is compiled before one is chosen."""
    from sglang.srt.mem_cache.registry import register_radix_cache_backend, registered_radix_cache_backends

    for name in table("eviction"):
        if PREFIX + name not in registered_radix_cache_backends():
            register_radix_cache_backend(PREFIX + name, _factory(name))


def _factory(name: str) -> Any:
    def build(context: Any) -> Any:
        from kvgym.backends.sglang.radix import PolicyRadixCache

        if context.is_hybrid_swa or context.is_hybrid_ssm or context.enable_hierarchical_cache:
            raise ValueError(
                f"{PREFIX}{name} keeps one full-attention KV pool on the device; this model or these flags ask for "
                "sliding windows, state-space layers or a hierarchical cache: leave --radix-cache-backend out"
            )
        # All ranks of a tensor-parallel worker share the server's seed, so they evict the same tokens.
        return PolicyRadixCache(context.params, name, context.server_args.random_seed or 0)

    return build
