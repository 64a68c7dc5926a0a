"""Token-wise eviction draws a candidate leaf uniformly at random and drops one page from its tail, again and again.

The one place where a policy answers and acts in turn (one draw per page, as the paper's algorithm says). A call with
fewer draws than candidates makes them one by one. A longer call draws *how often* each candidate is picked, which has
the same distribution and costs about 1/30 of a draw per page: binomial halvings, 63 fair coins a word. Order matters
only where a leaf is emptied: its parent takes its place in the draw (or, not being a candidate, leaves a place whose
later picks are void and made anew), so the picks of such places alone are replayed in random order.
"""

from __future__ import annotations

import numpy as np

from kvgym.engine.cache import leaflist
from kvgym.engine.cache.marks import add_leaf, end_phase
from kvgym.engine.cache.radix import drop_tail, remove_leaf
from kvgym.engine.rng import below, heads, next_word
from kvgym.engine.state import Cache
from kvgym.jit.door import i64, njit


@njit()
def binomial(counter: np.uint64, trials: int, a: int, n: int) -> tuple[np.uint64, int]:
    """Return (next counter of `heads`, successes of `trials` trials of probability a / n), exactly: 0 <= a < n.

    A trial compares random bits with those of a / n from the first on; half of the trials are decided by each bit.
    """
    won = i64(0)
    while trials > 0 and a > 0:
        counter, ones = heads(counter, trials)
        a *= 2
        if a >= n:
            a -= n
            won += trials - ones
            trials = ones
        else:
            trials -= ones
    return counter, won


@njit()
def spread(c: Cache, w: int, pages: int) -> None:
    """Draw how often each candidate is picked in `pages` draws: c.scratch[i] for position i.

    Positions are cut into blocks whose lengths are powers of two, largest first, and each block is halved down.
    """
    picks = c.scratch
    c.rng[w], counter = next_word(c.rng[w])
    at, left, n = i64(0), i64(pages), i64(c.workers[w].unmarked)
    while n > 0:
        size = i64(1)
        while 2 * size <= n:
            size *= 2
        mine = left
        if size < n:
            counter, mine = binomial(counter, left, size, n)
        picks[at] = mine
        step = size
        while step > 1:
            half = step // 2
            for i in range(at, at + size, step):
                m = i64(picks[i])
                counter, ones = heads(counter, m)
                picks[i] = ones
                picks[i + half] = m - ones
            step = half
        at, left, n = at + size, left - mine, n - size


@njit()
def swap(c: Cache, w: int, i: int, j: int) -> None:
    """Exchange positions i and j of the order, picks included."""
    a, b = i64(c.order[w, i]), i64(c.order[w, j])
    leaflist.place(c, w, i, b)
    leaflist.place(c, w, j, a)
    c.scratch[i], c.scratch[j] = c.scratch[j], c.scratch[i]


@njit()
def size_of(c: Cache, w: int, i: int) -> int:
    """Tokens that candidate i holds."""
    slot = c.slots[i64(c.order[w, i])]
    return i64(slot.d1 - slot.d0)


@njit()
def cut_tails(c: Cache, w: int) -> int:
    """Cut every candidate that outlives its picks; bring the others to the front and return their number."""
    page, spent = c.options[0].page, i64(0)
    for i in range(c.workers[w].unmarked):
        tokens = i64(c.scratch[i]) * page
        if tokens >= size_of(c, w, i):
            swap(c, w, spent, i)
            spent += 1
        elif tokens > 0:
            drop_tail(c, w, i64(c.order[w, i]), tokens)
    return spent


@njit()
def empty(c: Cache, w: int, i: int) -> None:
    """Evict what is left of candidate i and enter its parent if that has become an evictable leaf."""
    s = i64(c.order[w, i])
    leaflist.discard(c, w, s)
    parent = remove_leaf(c, w, s)
    if parent >= 0:
        add_leaf(c, w, parent)


@njit()
def hand_on(c: Cache, w: int, spent: int) -> bool:
    """`empty` the last of the first `spent` candidates; return whether a parent has taken its place."""
    last, before = spent - 1, i64(c.workers[w].unmarked)
    empty(c, w, last)
    if c.workers[w].unmarked < before:
        return False
    parent, other = i64(c.order[w, before - 1]), i64(c.order[w, last])
    leaflist.place(c, w, before - 1, other)
    leaflist.place(c, w, last, parent)
    return True


@njit()
def first_part(c: Cache, w: int, spent: int) -> int:
    """Choose the picks to make next, c.scratch[half + i] of each place's c.scratch[i]; return who is emptied, or -1.

    All of them, or so early a part of them that one place at most is emptied: a pick is in the first half of any
    stretch of time with probability 1/2.
    """
    half, page = len(c.scratch) // 2, c.options[0].page
    c.rng[w], counter = next_word(c.rng[w])
    for i in range(spent):
        c.scratch[half + i] = c.scratch[i]
    while True:
        emptied, which = 0, i64(-1)
        for i in range(spent):
            if c.scratch[half + i] * page >= size_of(c, w, i):
                emptied, which = emptied + 1, i
        if emptied <= 1:
            return which
        for i in range(spent):
            counter, count = heads(counter, i64(c.scratch[half + i]))
            c.scratch[half + i] = count


@njit()
def independent(c: Cache, w: int, spent: int) -> bool:
    """Whether the order does not matter: no two of the first `spent` share a parent, and no parent is emptied too."""
    page = c.options[0].page
    for i in range(spent):
        parent = i64(c.slots[i64(c.order[w, i])].parent)
        if parent == w:
            continue
        for j in range(i):
            if c.slots[i64(c.order[w, j])].parent == parent:
                return False
        above = c.slots[parent]
        if above.children == 1 and above.d1 - above.d0 <= i64(c.scratch[i]) * page - size_of(c, w, i):
            return False
    return True


@njit()
def make_picks(c: Cache, w: int, spent: int, picks: int) -> bool:
    """Make so many picks of the last of the first `spent` places; return False if the place is gone then."""
    tokens = picks * c.options[0].page
    while tokens >= size_of(c, w, spent - 1):
        tokens -= size_of(c, w, spent - 1)
        if not hand_on(c, w, spent):
            return False
    if tokens > 0:
        drop_tail(c, w, i64(c.order[w, spent - 1]), tokens)
    return True


@njit()
def replay(c: Cache, w: int, spent: int) -> None:
    """Make the picks of the first `spent` places in an order drawn at random, as far as it matters."""
    page, half = c.options[0].page, len(c.scratch) // 2
    left = i64(1)
    while left > 0 and spent > 0:
        which = first_part(c, w, spent)
        left = 0
        for i in range(spent):
            picks = i64(c.scratch[half + i])
            c.scratch[i] -= picks
            left += i64(c.scratch[i])
            if i != which and picks > 0:
                drop_tail(c, w, i64(c.order[w, i]), picks * page)
        if which >= 0:
            swap(c, w, which, spent - 1)
            if not make_picks(c, w, spent, i64(c.scratch[half + which])):
                spent -= 1
                left -= i64(c.scratch[spent])


@njit()
def third_shortest(c: Cache, w: int) -> int:
    """Pages of the third shortest candidate, more than any pool holds if there are fewer."""
    first = second = third = i64(1) << 40
    for i in range(c.workers[w].unmarked):
        size = size_of(c, w, i)
        if size < first:
            first, second, third = size, first, second
        elif size < second:
            second, third = size, second
        elif size < third:
            third = size
    return third // c.options[0].page


@njit()
def drop_many(c: Cache, w: int, pages: int) -> None:
    """Make up to `pages` draws at once; void ones drop nothing.

    So few that about three candidates are emptied: what is emptied costs more than its draws.
    """
    spread(c, w, min(pages, i64(c.workers[w].unmarked) * third_shortest(c, w)))
    spent = cut_tails(c, w)
    if independent(c, w, spent):
        while spent > 0:
            make_picks(c, w, spent, i64(c.scratch[spent - 1]))
            spent -= 1
    else:
        replay(c, w, spent)


@njit()
def drop_few(c: Cache, w: int, pages: int) -> None:
    """Make `pages` draws one by one, while there are candidates; two per random word, upper half first."""
    page = c.options[0].page
    bits, odd = np.uint64(0), False
    while pages > 0 and c.workers[w].unmarked > 0:
        if odd:
            bits <<= np.uint64(32)
        else:
            c.rng[w], bits = next_word(c.rng[w])
        odd = not odd
        i = below(bits, c.workers[w].unmarked)
        s = i64(c.order[w, i])
        pages -= 1
        if c.slots[s].d1 - c.slots[s].d0 > page:
            drop_tail(c, w, s, page)
        else:
            empty(c, w, i)


@njit()
def evict_unmarked(c: Cache, w: int, tokens: int) -> int:
    """Free `tokens` tokens, one uniform draw per page over the unmarked leaves; the phase ends when none is left."""
    worker, page = c.workers[w], c.options[0].page
    start = i64(worker.evicted)
    goal = start + (tokens + page - 1) // page * page
    while worker.evicted < goal and worker.leaves > 0:
        if worker.unmarked == 0:
            end_phase(c, w)
        pages = (goal - worker.evicted) // page
        if pages < worker.unmarked:
            drop_few(c, w, pages)
        else:
            drop_many(c, w, pages)
    return i64(worker.evicted) - start
