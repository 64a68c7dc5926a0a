"""A reward term is a function of what happened; it may say that one call can answer for many episodes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np

from kvgym.backends.base import Progress

Term = Callable[[Progress, Progress, np.ndarray], float]
"""``term(before, after, records)``: the episode's integrals at both steps, and what ended in between (RECORD rows)."""
_Term = TypeVar("_Term", bound=Callable[..., Any])


def of_integrals(term: _Term) -> _Term:
    """Declare, as a decorator, that `term` reads no records and does arithmetic only on the fields of `Progress`.

    The vector environment then calls it once a step with an array (episodes,) in each field, and without records. A
    term that does not say so is called for each episode with what ended there, which takes some microseconds a copy.
    """
    term.of_integrals = True  # type: ignore[attr-defined]
    return term


def reads_integrals_only(term: Any) -> bool:
    """Return whether `term` has been declared by `of_integrals`."""
    return bool(getattr(term, "of_integrals", False))
