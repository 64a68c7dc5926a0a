"""Token-wise eviction: draw candidate leaves uniformly at random and drop one page from the drawn leaf's tail.

The one place where a policy answers and acts in turn (one draw per page, as the paper's algorithm says). A call with
at least as many draws as candidates works on a copy of the leaf lengths, which costs about 1 ns a token; a shorter call
touches only the drawn leaves. Both make the same draws: two per 64-bit word, upper half first, a fresh word per call.
"""

from __future__ import annotations

import numpy as np

from kvgym.jit import i64, njit
from kvgym.sim import leaflist
from kvgym.sim.cache import drop_tail, remove_leaf
from kvgym.sim.random import below, next_word
from kvgym.sim.state import Cache


@njit()
def load_tails(c: Cache, w: int) -> None:
    """Copy the candidates' lengths, in pages, to c.scratch."""
    page = c.options[0].page
    for i in range(c.workers[w].unmarked):
        slot = c.slots[i64(c.order[w, i])]
        c.scratch[i] = (slot.d1 - slot.d0) // page


@njit()
def store_tails(c: Cache, w: int) -> None:
    """Cut every candidate to its length in c.scratch."""
    page = c.options[0].page
    for i in range(c.workers[w].unmarked):
        s = i64(c.order[w, i])
        slot = c.slots[s]
        gone = i64(slot.d1 - slot.d0) - i64(c.scratch[i]) * page
        if gone > 0:
            drop_tail(c, w, s, gone)


@njit()
def consume(c: Cache, w: int, i: int) -> int:
    """Evict what is left of candidate i; return its parent if that has become an evictable leaf, else -1."""
    s = i64(c.order[w, i])
    leaflist.discard(c, w, s)
    return remove_leaf(c, w, s)


@njit()
def draw_until_empty(c: Cache, w: int, pages: int, bits: np.uint64, odd: bool) -> tuple[int, int, np.uint64, bool]:
    """Draw on c.scratch until `pages` pages are dropped or one leaf is empty.

    Returns:
        (pages dropped, index of the emptied leaf or -1, current word, whether its lower half is still unused).
    """
    tails, state = c.scratch, c.rng[w]
    n = np.uint64(c.workers[w].unmarked)
    dropped, empty = i64(0), i64(-1)
    while dropped < pages:
        if odd:
            bits <<= np.uint64(32)
        else:
            state, bits = next_word(state)
        odd = not odd
        i = i64(((bits >> np.uint64(32)) * n) >> np.uint64(32))
        left = tails[i] - 1
        tails[i] = left
        dropped += 1
        if left == 0:
            empty = i
            break
    c.rng[w] = state
    return dropped, empty, bits, odd


@njit()
def drop_many(c: Cache, w: int, pages: int) -> tuple[int, int]:
    """Drop up to `pages` pages, at least one draw per candidate on average.

    Stops early when a leaf is emptied whose parent has become an evictable leaf, or when no candidate is left.

    Returns:
        (pages dropped, that parent or -1).
    """
    load_tails(c, w)
    dropped, parent = i64(0), i64(-1)
    bits, odd = np.uint64(0), False
    while dropped < pages and c.workers[w].unmarked > 0:
        n, empty, bits, odd = draw_until_empty(c, w, pages - dropped, bits, odd)
        dropped += n
        if empty >= 0:
            parent = consume(c, w, empty)
            c.scratch[empty] = c.scratch[c.workers[w].unmarked]
            if parent >= 0:
                break
    store_tails(c, w)
    return dropped, parent


@njit()
def drop_few(c: Cache, w: int, pages: int) -> tuple[int, int]:
    """The same as `drop_many`, draw by draw on the slots themselves."""
    page = c.options[0].page
    dropped, parent = i64(0), i64(-1)
    bits, odd = np.uint64(0), False
    while dropped < pages and c.workers[w].unmarked > 0:
        if odd:
            bits <<= np.uint64(32)
        else:
            c.rng[w], bits = next_word(c.rng[w])
        odd = not odd
        i = below(bits, c.workers[w].unmarked)
        s = i64(c.order[w, i])
        dropped += 1
        if c.slots[s].d1 - c.slots[s].d0 > page:
            drop_tail(c, w, s, page)
        else:
            parent = consume(c, w, i)
            if parent >= 0:
                break
    return dropped, parent


@njit()
def drop_pages(c: Cache, w: int, pages: int) -> tuple[int, int]:
    """Drop up to `pages` pages from random candidate tails; see `drop_many` for what it returns.

    The caller enters the returned parent into its order and calls again for the rest.
    """
    if pages >= c.workers[w].unmarked:
        return drop_many(c, w, pages)
    return drop_few(c, w, pages)
