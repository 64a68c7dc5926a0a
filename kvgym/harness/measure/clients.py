"""Turns a server's times into what a benchmark's client would have written down."""

from __future__ import annotations

import numpy as np

from kvgym.types import DONE

_GOLDEN = 0x9E3779B97F4A7C15


def seen_by_client(records: np.ndarray, late_text_share: float) -> np.ndarray:
    """Return RECORD rows with `first_token_s` moved to `finish_s` for this share of the answered requests.

    Which requests these are depends on their number alone, so that policies stay paired.
    """
    if not late_text_share:
        return records
    draws = (records["request"].astype(np.uint64) + 1) * np.uint64(_GOLDEN) / 2.0**64
    late = (records["status"] == DONE) & (draws < late_text_share)
    seen = records.copy()
    seen["first_token_s"][late] = records["finish_s"][late]
    return seen
