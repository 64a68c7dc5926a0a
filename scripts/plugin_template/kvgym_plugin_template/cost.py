"""A slow worker has linear step times (made-up numbers)."""

from __future__ import annotations

from kvgym.costs.linear import Linear

SLOW = Linear(p0_ms=20.0, p_tok_ms=0.3, d0_ms=40.0, d_seq_ms=0.1, step_ms=5.0, request_ms=20.0)
