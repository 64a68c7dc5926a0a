"""A cost model gives seconds per engine step as the ten numbers that the compiled engine takes."""

from __future__ import annotations

from typing import NamedTuple, Protocol


class StepCosts(NamedTuple):
    """What engine steps cost, seconds.

    With n computed and c cached tokens per sequence, and B sequences, a prefill step takes
    p0 + sum(p_tok*n + p_quad*n*(c + n/2) + p_kv*(c + n)) and a decode step d0 + d_seq*B + d_kvtok*context. A step of
    both reads the weights once and computes for all of its tokens, max(d0 + d_seq*B, p0 + p_tok*(sum(n) + B)), and does
    the attention of both, in which a decode's context costs mix_kvtok more.

    Attributes:
        p0_s: per prefill step.
        p_tok_s: per computed token.
        p_quad_s: per computed token and token of context.
        p_kv_s: per token of context in a prefill.
        d0_s: per decode step.
        d_seq_s: per sequence of a decode step.
        d_kvtok_s: per token of context in a decode step.
        mix_kvtok_s: per token of the decodes' context in a step that also prefills, beside d_kvtok_s.
        step_s: CPU time added to every step.
        request_s: from the router to the worker's queue.
    """

    p0_s: float = 0.0
    p_tok_s: float = 0.0
    p_quad_s: float = 0.0
    p_kv_s: float = 0.0
    d0_s: float = 0.0
    d_seq_s: float = 0.0
    d_kvtok_s: float = 0.0
    mix_kvtok_s: float = 0.0
    step_s: float = 0.0
    request_s: float = 0.0


class CostModel(Protocol):
    """What a cost model offers.

    One that holds only where nothing is batched also has an attribute ``one_at_a_time = True``; then the cluster must
    say so, too.
    """

    def steps(self) -> StepCosts:
        """Return what the engine's steps cost."""
        ...
