"""Tells what a request would cost a worker that serves nobody else: the service cost that the paper sums to a load."""

from __future__ import annotations

from typing import Any

from kvgym.jit.door import njit


def service_s(o: Any, prompt: int, hit: int, out: int) -> float:
    """Return the seconds that a worker of speed 1 is busy with one request alone.

    The prompt's missed tokens come in chunks, then each token but the first is a decode step (see `batches`); both sums
    are closed. With the costs of `kvgym.costs.analytic` this is the paper's Cost_ij.

    Args:
        o: OPTIONS record, whose fields are attributes (a record array's).
        prompt: tokens of the prompt.
        hit: of them, found in the cache; the worker computes at least one all the same.
        out: tokens generated; the prefill gives the first.
    """
    new = max(prompt - hit, 1)
    cached, decodes = float(prompt - new), max(out - 1.0, 0.0)
    chunks = float(-(-new // o.chunk))
    context = (chunks - 1.0) * cached + 0.5 * o.chunk * chunks * (chunks - 1.0) + prompt
    prefill = chunks * (o.p0 + o.step_s) + o.p_tok * new + o.p_kv * context
    # n * (c + n/2) of all chunks is the area between two squares, whatever the chunks.
    prefill += 0.5 * o.p_quad * (float(prompt) * prompt - cached * cached)
    decode = decodes * (o.d0 + o.step_s + o.d_seq) + o.d_kvtok * (decodes * prompt + 0.5 * decodes * (decodes + 1.0))
    return prefill + decode


service_part = njit()(service_s)
"""The same for compiled code."""
