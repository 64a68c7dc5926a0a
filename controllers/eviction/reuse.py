"""Reuse evicts the tails whose tokens are least likely to be reused per tick that they stay, learned from reuse ages.

The idea. A token that stays costs space for as long as it stays and pays when it is reused. For a leaf that was last
used `age` ticks ago the *index* is the best rate that keeping it promises: the largest, over horizons, of the
probability of a reuse within the horizon divided by the expected time until that reuse or the horizon (Gittins' index
of the reuse time). Nothing is assumed about its law; it is learned, per worker, from what happens:

- every reuse and every eviction of tokens is counted at the age at which it came, an eviction as a reuse that was not
  waited for (Kaplan and Meier's estimate of the hazard); ages fall into buckets a quarter of an octave wide;
- apart for two classes: leaves that nobody has reused yet, and all others. So questions that nobody asks twice go
  before prefixes that many prompts share, but only as long as that is what happens: where the next turn of a
  conversation reuses the newest leaf, the counts say so;
- counts fade, so a popularity that shifts is learned anew.

What goes: of some leaves drawn at random the one with the smallest index loses the later half of its tokens, then the
next, until enough is free. The later half: the beginning of a path is never reused less often than its end, and a half
that stays shows when the prompt would have come again. At random: equal leaves must not take turns, or a cycle longer
than the cache finds nothing (as with LRU).

What each part brings: ``kvgym compare eviction_ablation`` (`reuse_ablation`). The classes bring up to 18 points of hit
rate, the halves 1 to 6. The ages bring 13 on a cycle of twice the pool; where prefixes come at random they cost up to
0.7. Sources of the parts: the hit density of LHD (Beckmann, Chen, Cidon 2018), Gittins' index (1979), tails and random
choice as in RLT (paper section 3).

Limits. No competitive bound is proved: an adversary who changes the law of reuse faster than the counts fade makes it
as wrong as any rule that learns. In ``kvgym theory`` it loads 1.7 to 2.1 times what the optimum does on the cyclic
star, at any size, but up to 1.7 times on alternating hot sets, where RLT's marks lead to 1.0 to 1.3 (1.6 with four
leaves). It starts with a guess (leaves that have been reused are worth more, young ones more than old ones), so the
first few hundred evictions are those of a rule of thumb. Where each leaf is reused once, by the next turn of its
session, it can only learn how long turns take: there LRU is about as good, and in a pool that holds nearly everything
up to 0.6 points better (`eviction_traces`).

Where it was not tuned (``kvgym compare eviction_held_out``, hits under session_affinity): best of lru, slru, rlt and
reuse on generated prefixes in turn (22.2 %, RLT 5.3) and at random (52.4, RLT 51.6), on coding agents in a small pool
(35.1, LRU 34.0); but LRU hits more on Mooncake's conversations over 16 small workers (10.7, reuse 8.9) and on its
synthetic half (25.2 against 22.8 with 6 workers). On traces with many different prompts and pools far smaller than
what they use, measure before choosing it.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from controllers.eviction.random_leaf import enter, leave
from kvgym.engine.cache import leaflist
from kvgym.engine.cache.policy import Policy, evict_hook, touch_hook
from kvgym.engine.cache.radix import TOUCH_INSERT, TOUCH_NEW, TOUCH_SPLIT_INSERT, drop_tail
from kvgym.engine.rng import below, next_word, ones
from kvgym.engine.state import Cache
from kvgym.jit.door import i64, njit

BUCKETS = 64
"""Ages 0 .. 2**17 - 1 ticks, four buckets an octave; older ones count with the last."""
CLASSES = 2
SAMPLE = 64
"""Leaves drawn at a time."""
TURNS = 16
"""Of so many leaves drawn one loses its tail."""
PARTS = 16
"""An eviction takes at least this share of its tokens from each leaf (or the whole leaf)."""
REFRESH = 512
"""Victims between two computations of the index."""
FADE = 0.95
"""What is left of a count after a refresh."""
GUESS = (0.01, 0.25)
"""Hazard per bucket that is guessed for each class ..."""
GUESS_POOL = (0.001, 0.02)
"""... with the weight of so many tokens reused or evicted there, as a share of the pool."""
TAKEN = 1e30
"""Score of a drawn leaf that has had its turn."""
HOPELESS = 0.02
"""Horizons end where so few are left without a reuse."""

# A worker's row of c.memory: victims until the next refresh, the scores of the sample, then per class and bucket
# tokens reused, tokens evicted, and the index.
SCORES = 1
REUSED = SCORES + SAMPLE
EVICTED = REUSED + CLASSES * BUCKETS
INDEX = EVICTED + CLASSES * BUCKETS
NUMBERS = INDEX + CLASSES * BUCKETS


@njit()
def bucket(age: int) -> int:
    """Bucket of an age in ticks: 0..7 are their own, then four for each doubling."""
    x = np.uint64(age)
    for shift in (1, 2, 4, 8, 16):
        x |= x >> np.uint64(shift)
    octave = max(ones(x) - 3, 0)
    return min(4 * octave + (i64(age) >> octave), BUCKETS - 1)


@njit()
def ticks(b: int) -> float:
    """Ticks that bucket b spans."""
    return 1.0 if b < 8 else float(1 << (b // 4 - 1))


@njit()
def refresh(c: Cache, w: int) -> None:
    """Compute the index of every class and bucket; let the counts fade."""
    m = c.memory[w]
    for k in range(CLASSES):
        pool = GUESS_POOL[k] * c.workers[w].capacity
        alive = 0.0
        for b in range(BUCKETS - 1, -1, -1):
            at = k * BUCKETS + b
            alive += m[REUSED + at] + m[EVICTED + at]
            m[INDEX + at] = (m[REUSED + at] + pool * GUESS[k]) / (alive - 0.5 * m[EVICTED + at] + pool)
            m[REUSED + at] *= FADE
            m[EVICTED + at] *= FADE
        for b in range(BUCKETS):  # from hazards to the index, in place: bucket b needs those from b on
            left, reuse, time, best = 1.0, 0.0, 0.0, 0.0
            for t in range(b, BUCKETS):
                hazard = m[INDEX + k * BUCKETS + t]
                reuse += left * hazard
                time += left * ticks(t) * (1.0 - 0.5 * hazard)
                left *= 1.0 - hazard
                if reuse > best * time:
                    best = reuse / time
                if left < HOPELESS:
                    break
            m[INDEX + k * BUCKETS + b] = best


def _places(classes: bool, ages: bool) -> Any:
    """Return the function that says where a slot is counted."""

    @njit()
    def place_of(c: Cache, w: int, s: int) -> int:
        """Class and bucket of slot s, as an offset; `epoch` holds the hits at its last use and `key` the tick."""
        slot = c.slots[s]
        of_class = i64(slot.epoch > 1) if classes else i64(0)
        return of_class * BUCKETS + (bucket(c.workers[w].tick - slot.key) if ages else i64(0))

    return place_of


def _touch_by(place_of: Any) -> Any:
    """Return the `touch` hook."""

    @touch_hook
    def touch(c: Cache, w: int, s: int, kind: int) -> None:
        """Count a reuse: an insert by a request that has not been here before (SGLang's hit)."""
        slot = c.slots[s]
        if kind == TOUCH_INSERT or kind == TOUCH_SPLIT_INSERT:
            if slot.hits > slot.epoch:
                c.memory[w, REUSED + place_of(c, w, s)] += i64(slot.d1 - slot.d0)
            slot.epoch, slot.key = slot.hits, c.workers[w].tick
        elif kind == TOUCH_NEW:
            slot.epoch, slot.key = slot.hits, c.workers[w].tick

    return touch


def _sample_by(place_of: Any) -> Any:
    """Return the function that draws leaves."""

    @njit()
    def sample(c: Cache, w: int) -> int:
        """Draw leaves to c.scratch and their scores to c.memory[w]; return how many (all, if there are few)."""
        leaves, m = i64(c.workers[w].leaves), c.memory[w]
        n = min(leaves, SAMPLE)
        for i in range(n):
            j = i
            if leaves > SAMPLE:
                c.rng[w], bits = next_word(c.rng[w])
                j = below(bits, leaves)
            s = i64(c.order[w, j])
            c.scratch[i] = s
            m[SCORES + i] = m[INDEX + place_of(c, w, s)]
        return n

    return sample


def _take_by(place_of: Any, halves: bool) -> Any:
    """Return the function that evicts from one leaf."""

    @njit()
    def take(c: Cache, w: int, s: int, least: int, most: int) -> int:
        """Evict the later half of leaf s, at least `least` and at most `most` tokens; return how many."""
        slot, page = c.slots[s], c.options[0].page
        size = i64(slot.d1 - slot.d0)
        part = size
        if halves:
            part = min(max(size - size // 2, least), most, size)
            part = (part + page - 1) // page * page
        c.memory[w, EVICTED + place_of(c, w, s)] += part
        if part < size:
            drop_tail(c, w, s, part)
        else:
            leaflist.take(c, w, s)
        return part

    return take


def _evict_by(sample: Any, take: Any) -> Any:
    """Return the `evict` hook."""

    @evict_hook
    def evict(c: Cache, w: int, tokens: int) -> int:
        """Take from one sample after the other, smallest index first."""
        worker, m = c.workers[w], c.memory[w]
        freed = i64(0)
        while freed < tokens and worker.leaves > 0:
            if m[0] <= 0.0:
                refresh(c, w)
                m[0] = REFRESH
            n = sample(c, w)
            for _ in range((n + TURNS - 1) // TURNS):
                best = 0
                for i in range(1, n):
                    if m[SCORES + i] < m[SCORES + best]:
                        best = i
                if freed >= tokens or m[SCORES + best] == TAKEN:
                    break
                s = i64(c.scratch[best])
                for i in range(best, n):  # it may have been drawn twice
                    if c.scratch[i] == s:
                        m[SCORES + i] = TAKEN
                freed += take(c, w, s, tokens // PARTS, tokens - freed)
                m[0] -= 1.0
        return freed

    return evict


def make(classes: bool = True, ages: bool = True, halves: bool = True) -> Policy:
    """Return the policy, or for the ablation what is left of it without one of its parts."""
    place_of = _places(classes, ages)
    evict = _evict_by(_sample_by(place_of), _take_by(place_of, halves))
    return Policy(enter, leave, _touch_by(place_of), evict, NUMBERS)


POLICY = make()
