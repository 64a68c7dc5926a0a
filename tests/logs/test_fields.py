from __future__ import annotations

import pytest

from kvgym.errors import WorkloadError
from kvgym.logs import fields
from kvgym.logs.rows import Row


def row(**data):
    return Row("log, line 7", data)


def test_find__names_count_before_places_and_null_is_nothing():
    first, second = row(b=1, c=None), row(a=2)
    assert fields.find([first, second], ("a", "b")) == (second, "a")
    assert fields.find([first, second], ("c",)) is None


@pytest.mark.parametrize(
    ("data", "seconds"),
    [
        ({"timestamp": 12.5}, 12.5),
        ({"created": 1_700_000_000}, 1.7e9),
        ({"timestamp": 1_700_000_000_250}, 1_700_000_000.25),
        ({"timestamp": 1_700_000_000_250_000}, 1_700_000_000.25),
        ({"timestamp": 1_700_000_000_250_000_000}, 1_700_000_000.25),
        ({"timestamp_ms": 1500}, 1.5),
        ({"created_at": "1970-01-01T00:00:02.5Z"}, 2.5),
        ({"created_at": "1970-01-01T01:00:02+01:00"}, 2.0),
        ({"timestamp": "1970-01-01T00:00:03"}, 3.0),
        ({}, None),
    ],
)
def test_stamp__spellings(data, seconds):
    assert fields.stamp([row(**data)]) == pytest.approx(seconds, abs=1e-6)


@pytest.mark.parametrize("value", [-1, float("nan"), float("inf"), True, "yesterday", [1]])
def test_stamp__malformed(value):
    with pytest.raises(WorkloadError, match=r"log, line 7: timestamp must be seconds >= 0 .*ISO 8601 date, got"):
        fields.stamp([row(timestamp=value)])


def test_latency__given_or_from_the_end():
    assert fields.latency([row(latency_ms=250)], None) == 0.25
    assert fields.latency([row(e2e_latency=2)], None) == 2
    assert fields.latency([row(end_time=7.5)], 5.0) == 2.5
    assert fields.latency([row(end_time=7.5)], None) is None
    with pytest.raises(WorkloadError, match="end_time must be not before the request's arrival, got 4"):
        fields.latency([row(end_time=4)], 5.0)


def test_label__text_or_number():
    assert fields.label([row(user="a"), row(user_id=3)], ("user_id", "user")) == "3"
    assert fields.label([row()], ("user",)) == ""
    with pytest.raises(WorkloadError, match=r"user must be text or a whole number, got \{\}"):
        fields.label([row(user={})], ("user",))
