"""Small functions answer questions about requests and memory: page rounding, forest coordinates, tokens generated."""

from __future__ import annotations

from kvgym.engine.state import Cache, Sim
from kvgym.jit.door import i64, njit

RATIO_INIT, RATIO_MIN, RATIO_STEPS = 0.7, 0.7 * 0.14, 600
"""New-token ratio of SGLang 0.5.23: start, floor, decode steps from one to the other."""
RETRACT_STEPS = 20
"""Tokens assumed still to come per request when the ratio is estimated after a retraction."""
INPUT_MARGIN = 6
"""A prompt longer than the pool minus this is refused (a pool of 4,096 takes 4,090)."""


@njit()
def page_ceil(tokens: int, page: int) -> int:
    """Round up to whole pages."""
    return (tokens + page - 1) // page * page


@njit()
def page_floor(tokens: int, page: int) -> int:
    """Round down to whole pages."""
    return tokens // page * page


@njit()
def path_node(x: Sim, r: int, tokens: int) -> int:
    """Forest node whose path holds the first `tokens` tokens of request r's prompt and answer."""
    if tokens > x.requests[r].prompt_tokens and x.requests[r].output_node >= 0:
        return i64(x.requests[r].output_node)
    return i64(x.requests[r].prompt_node)


@njit()
def cacheable(c: Cache, x: Sim, r: int, tokens: int) -> int:
    """Whole-page tokens of the first `tokens` tokens of request r that the cache can hold."""
    if x.requests[r].output_node < 0:
        tokens = min(tokens, i64(x.requests[r].prompt_tokens))
    return page_floor(tokens, c.options[0].page)


@njit()
def generated(c: Cache, x: Sim, w: int, r: int) -> int:
    """Tokens that running request r has generated so far."""
    return i64(x.live[r].out) + c.workers[w].decoded - x.live[r].join


@njit()
def computed(c: Cache, x: Sim, w: int, r: int) -> int:
    """KV tokens of running request r."""
    return i64(x.live[r].kv) + c.workers[w].decoded - x.live[r].join


@njit()
def clipped_new_tokens(c: Cache, x: Sim, w: int, r: int) -> int:
    """Return max_new_tokens cut to what fits beside the prompt in an empty pool of worker w; 0: prompt too long."""
    capacity, page, prompt = c.workers[w].capacity, c.options[0].page, i64(x.requests[r].prompt_tokens)
    if c.workers[w].blocked == 1:
        return max(0, min(i64(x.requests[r].max_new_tokens), capacity - prompt))
    if prompt > capacity - INPUT_MARGIN:
        return 0
    return max(0, min(i64(x.requests[r].max_new_tokens), capacity - page_ceil(prompt, page) - page - 1))
