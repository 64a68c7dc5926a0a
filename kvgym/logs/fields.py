"""Fields of log rows have one of several names in several places; points in time are read however they are written."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime

from kvgym.logs.rows import Row

STAMPS = (
    *("timestamp", "timestamp_ms", "timestamp_us", "timestamp_ns", "@timestamp", "ts", "ts_ms", "ts_us", "ts_ns"),
    *("timestamp_start_unix_ms", "timestamp_start", "request_start_ns", "request_timestamp", "arrival_s", "arrival_ms"),
    *("arrival_time", "arrived_at", "arrival", "start_time", "startTime", "start_ts", "started_at", "request_time"),
    *("received_at", "datetime", "date", "time", "created_at", "createdAt", "created"),
)
"""Names of the arrival, the preferred first; the end of a name may be its unit."""
LATENCIES = (
    *("latency_s", "e2e_latency", "e2e_latency_s", "latency", "duration_s", "duration", "elapsed_s", "latency_ms"),
    *("duration_ms", "e2e_latency_ms", "request_latency_ms", "elapsed_ms", "response_time_ms", "total_time_ms"),
)
"""Names of the time from arrival to the end of the answer."""
UNSAID_LATENCIES = ("e2e_latency", "latency", "duration")
"""Of these, the ones that do not say their unit: seconds, unless the log's own gaps say that it is milliseconds."""
ENDS = ("end_time", "endTime", "finish_time", "completed_at")
"""Names of the point in time at which the answer ended, where its latency is not given."""

_ALLOWED = "seconds >= 0 (from 1e11 on: milliseconds since 1970) or an ISO 8601 date"
_LATEST = 1e20  # nanoseconds; later ones would overflow once simulated
# a number this large is a date in that unit, not in a coarser one: 1e11 s lies in the year 5138, 1e11 ms in 1973
_UNITS = ((1e17, 1e-9), (1e14, 1e-6), (1e11, 1e-3))
_SUFFIXES = {"_ms": 1e-3, "_us": 1e-6, "_ns": 1e-9}
_UNIT_NAMES = {1.0: "s", 1e-3: "ms", 1e-6: "us", 1e-9: "ns"}


def find(places: Iterable[Row], names: Sequence[str]) -> tuple[Row, str] | None:
    """Return (place, name) of the first field of that kind which is there and not null; names count before places."""
    rows = list(places)
    for name in names:
        for row in rows:
            if row.data.get(name) is not None:
                return row, name
    return None


def nested(row: Row, names: Sequence[str]) -> Row | None:
    """Return the first of these fields that is an object."""
    for name in names:
        if isinstance(row.data.get(name), dict):
            return Row(f"{row.where}, {name}", row.data[name])
    return None


def label(places: Iterable[Row], names: Sequence[str]) -> str:
    """Return a name or number as text; empty if there is none."""
    if (found := find(places, names)) is None:
        return ""
    row, name = found
    value = row.data[name]
    if isinstance(value, bool) or not isinstance(value, str | int):
        raise row.error(name, "text or a whole number")
    return str(value)


def count(places: Iterable[Row], names: Sequence[str], least: int = 0) -> int | None:
    """Return a whole number of tokens >= `least`; None if there is none."""
    found = find(places, names)
    return None if found is None else found[0].tokens(found[1], least)


def stamp(places: Iterable[Row], names: Sequence[str] = STAMPS) -> float | None:
    """Return a point in time in seconds; None if there is none (see `clock`)."""
    found = clock(places, names)
    return None if found is None else found[0]


def clock(places: Iterable[Row], names: Sequence[str] = STAMPS) -> tuple[float, str] | None:
    """Return a point in time in seconds, and the field and unit that it was read from; None if there is none.

    Numbers are in the unit that the field's name ends in (``_ms``, ``_us``, ``_ns``), else seconds since 1970 or since
    the log's start, large ones milli-, micro- or nanoseconds since 1970; texts are ISO 8601, in UTC where they do not
    say. Only differences are used.
    """
    if (found := find(places, names)) is None:
        return None
    row, name = found
    value = row.data[name]
    if isinstance(value, str):
        try:
            date = datetime.fromisoformat(value)
        except ValueError as error:
            raise row.error(name, _ALLOWED) from error
        return (date if date.tzinfo else date.replace(tzinfo=UTC)).timestamp(), f"{name} (date)"
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= _LATEST:
        raise row.error(name, _ALLOWED)
    factor = next((each for end, each in _SUFFIXES.items() if name.endswith(end)), None)
    if factor is None:
        factor = next((each for least, each in _UNITS if value >= least), 1.0)
    return value * factor, f"{name} ({_UNIT_NAMES[factor]})"


def latency(places: Iterable[Row], start_s: float | None) -> float | None:
    """Return the seconds from arrival to the end of the answer; None if the log does not tell."""
    rows = list(places)
    if found := find(rows, LATENCIES):
        row, name = found
        return row.seconds(name) * next((factor for end, factor in _SUFFIXES.items() if name.endswith(end)), 1.0)
    end_s = stamp(rows, ENDS)
    if end_s is None or start_s is None:
        return None
    if end_s < start_s:
        row, name = find(rows, ENDS) or (rows[0], ENDS[0])
        raise row.error(name, "not before the request's arrival")
    return end_s - start_s
