"""A router sees scraped metrics of running, queued and KV use, by period, delay and loss.

Scrape k happens at k * scrape_s, before anything else that happens then, and reaches the routers scrape_delay_s later;
scrape 0 saw idle workers. The scrape of each worker is lost by itself, and a dead worker does not answer; routers then
keep what they had.
"""

from __future__ import annotations

import numpy as np

from kvgym.engine.rng import next_word
from kvgym.engine.state import DOWN, Cache, Sim
from kvgym.jit.door import i64, njit


@njit()
def scrape(c: Cache, x: Sim, until_s: float) -> None:
    """Make all scrapes that are due up to `until_s`; no worker changes before."""
    clock, o = c.clock[0], c.options[0]
    while clock.scrape_due_s <= until_s:
        now, before = x.scrapes[clock.scrapes % len(x.scrapes)], x.scrapes[(clock.scrapes - 1) % len(x.scrapes)]
        for w in range(len(c.workers)):
            worker = c.workers[w]
            if (o.scrape_loss > 0.0 and lost(c)) or worker.phase == DOWN:
                for row in range(3):
                    now[row, w] = before[row, w]
            else:
                now[0, w], now[1, w], now[2, w] = worker.running, worker.queued, worker.capacity - worker.free
        clock.scrapes += 1
        clock.scrape_due_s = clock.scrapes * o.scrape_s


@njit()
def lost(c: Cache) -> bool:
    """Draw whether a scrape is lost."""
    clock = c.clock[0]
    clock.scrape_word, bits = next_word(clock.scrape_word)
    return (bits >> np.uint64(11)) * 2.0**-53 < c.options[0].scrape_loss


@njit()
def delivered(c: Cache) -> int:
    """Return the number of the last scrape that has reached the routers, or -1."""
    clock, o = c.clock[0], c.options[0]
    k = min(i64(np.floor((clock.now_s - o.scrape_delay_s) / o.scrape_s)) + 1, clock.scrapes - 1)
    # the division may round either way; the product is what the clock was compared with
    while k >= 0 and k * o.scrape_s + o.scrape_delay_s > clock.now_s:
        k -= 1
    return k


def on_the_way(scrape_s: float, delay_s: float) -> int:
    """Return how many scrapes must be kept so that the last delivered one is among them."""
    return int(delay_s / scrape_s) + 4
