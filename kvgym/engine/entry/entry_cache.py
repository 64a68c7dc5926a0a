"""Single cache operations are entered here: paused evictions and `CacheHandle` use them."""

from __future__ import annotations

from typing import Any

from kvgym.engine.cache import radix
from kvgym.engine.cache.binding import hooks_of
from kvgym.engine.entry.signatures import on_cache, with_hooks
from kvgym.engine.state import Cache
from kvgym.jit.door import i64
from kvgym.jit.entry_points import INT, PAIR, VOID


@with_hooks(INT, INT)
def serve_eviction(c: Cache, w: int, bound: Any) -> int:
    """Let the policy serve the eviction that worker w waits for; return the tokens freed."""
    freed = i64(hooks_of(bound).evict(c, w, c.workers[w].need))
    c.workers[w].need = 0
    return freed


@with_hooks(INT, INT, INT, INT)
def match(c: Cache, w: int, node: int, tokens: int, bound: Any) -> int:
    """`cache.match`."""
    return radix.match(c, hooks_of(bound), w, node, tokens)


@with_hooks(PAIR, INT, INT, INT, INT, INT)
def insert(c: Cache, w: int, node: int, tokens: int, priority: int, inserted: int, bound: Any) -> tuple[int, int]:
    """`cache.insert` of an unlocked new slot."""
    return radix.insert(c, hooks_of(bound), w, node, tokens, priority, inserted, False)


@with_hooks(VOID, INT, INT)
def lock(c: Cache, w: int, s: int, bound: Any) -> None:
    """`cache.lock` up to the root."""
    radix.lock(c, hooks_of(bound), w, s, w)


@with_hooks(VOID, INT, INT)
def unlock(c: Cache, w: int, s: int, bound: Any) -> None:
    """`cache.unlock`."""
    radix.unlock(c, hooks_of(bound), w, s)


@on_cache(INT, INT, INT, INT)
def look(c: Cache, w: int, node: int, tokens: int) -> int:
    """`cache.peek`."""
    return radix.peek(c, w, node, tokens)


@on_cache(INT, INT, INT)
def find(c: Cache, w: int, node: int) -> int:
    """Return the slot of worker w that begins where forest node `node` begins, or -1."""
    return radix.lookup(c, w, node, i64(c.nodes[node].start))


@on_cache(VOID, INT, INT, INT, INT)
def split_node(c: Cache, w: int, node: int, upper: int, depth: int) -> None:
    """`cache.split_node`."""
    radix.split_node(c, w, node, upper, depth)
