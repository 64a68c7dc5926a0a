from __future__ import annotations

import numpy as np
import pytest

from kvgym.config.slo import SLO
from kvgym.errors import ConfigError
from kvgym.types import DONE, FAILED, RECORD


def records(*rows):
    """Return RECORD rows from (status, arrival, first token, finish, output tokens)."""
    out = np.zeros(len(rows), RECORD)
    for record, row in zip(out, rows, strict=True):
        for name, value in zip(("status", "arrival_s", "first_token_s", "finish_s", "output_tokens"), row, strict=True):
            record[name] = value
    return out


ROWS = records(
    (DONE, 1.0, 2.0, 4.0, 5),  # TTFT 1, TPOT 0.5, latency 3
    (DONE, 1.0, 1.5, 4.5, 3),  # 0.5, 1.5, 3.5
    (DONE, 0.0, 4.0, 4.25, 1),  # 4, none, 4.25: the stream ended a moment after its only token
    (FAILED, 0.0, 0.0, 0.0, 0),
)


@pytest.mark.parametrize(
    ("limits", "good"),
    [
        ({"ttft_s": 1.0}, [True, True, False, False]),
        ({"tpot_s": 0.5}, [True, False, True, False]),
        ({"latency_s": 3.0}, [True, False, False, False]),
        ({"ttft_s": 4.0, "tpot_s": 0.25}, [False, False, True, False]),
        ({"ttft_s": 9.0, "tpot_s": 9.0, "latency_s": 9.0}, [True, True, True, False]),
    ],
)
def test_met__needs_every_limit(limits, good):
    assert SLO(**limits).met(ROWS).tolist() == good


@pytest.mark.parametrize(
    ("limits", "message"), [({}, "at least one limit"), ({"tpot_s": 0.0}, "tpot_s must be a number > 0")]
)
def test_slo__without_sense_is_an_error(limits, message):
    with pytest.raises(ConfigError, match=message):
        SLO(**limits)
