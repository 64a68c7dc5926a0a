"""Says in words what an import found, took for granted and did not read."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np

from kvgym.errors import WorkloadError
from kvgym.logs.entries import Entry
from kvgym.logs.fields import STAMPS
from kvgym.logs.reported import FACTOR, WITHHELD

_LONGEST_S = 400 * 86400.0
"""A log that spans more is one with mixed clocks."""
_MOST_NAMED = 12
_NO_PROMPTS = {"lengths": "only lengths are known: no prompt shares anything with another"}
_TIME_WORDS = ("time", "date", "stamp", "_at", "ts")


class Survey:
    """Watches the entries of an import."""

    def __init__(self) -> None:
        self._unread: Counter[str] = Counter()
        self._clocks: Counter[str] = Counter()
        self._untimed = 0
        self._requests = 0

    def seen(self, entries: Iterable[Entry]) -> Iterator[Entry]:
        """Yield the entries, counting what they say of themselves."""
        for entry in entries:
            self._requests += 1
            self._unread.update(entry.unread)
            if entry.clock:
                self._clocks[entry.clock] += 1
            self._untimed += entry.time_s is None
            yield entry

    @property
    def fields_not_read(self) -> dict[str, int]:
        """Field -> in how many requests it stood and was not read, the most frequent first."""
        return dict(self._unread.most_common())

    def check_times(self, arrival_s: np.ndarray, name: str) -> None:
        """Refuse arrivals that can't be of one log.

        Raises:
            WorkloadError: they span more than 400 days.
        """
        span_s = float(np.nanmax(arrival_s)) if len(arrival_s) and not np.isnan(arrival_s).all() else 0.0
        if span_s > _LONGEST_S:
            units = ", ".join(f"{clock} in {count} rows" for clock, count in self._clocks.most_common())
            raise WorkloadError(
                f"{name}: the arrivals span {span_s / 86400 / 365.25:.1f} years, read as {units}: its clocks or units "
                "are mixed; write all arrivals on one clock in one unit"
            )

    def notes(self, facts: Mapping[str, Any], bad: Mapping[str, tuple[int, str]]) -> list[str]:
        """Return what a reader of the import should know, a sentence each."""
        found = [*self._of_times(facts), *_of_lengths(facts)]
        if facts["format"] in _NO_PROMPTS:
            found.append(_NO_PROMPTS[facts["format"]])
        for kind in ("failed", "cancelled", "empty"):
            if count := facts.get(f"requests_{kind}"):
                found.append(f"{count} {kind} requests are left out: no server has worked for them as for others")
        found += [f"{count} rows are left out: {kind} (first: {first})" for kind, (count, first) in bad.items()]
        if self._unread:
            names = [f"{name} ({count})" for name, count in self._unread.most_common(_MOST_NAMED)]
            more = len(self._unread) - len(names)
            found.append(f"fields that were not read: {', '.join(names)}{f' and {more} more' if more > 0 else ''}")
        return found

    def _of_times(self, facts: Mapping[str, Any]) -> Iterator[str]:
        if self._clocks:
            yield "arrivals are read from " + ", ".join(f"{clock}" for clock in self._clocks)
        if len({clock.partition(" (")[2] for clock in self._clocks}) > 1:
            rows = ", ".join(f"{clock}: {count} rows" for clock, count in self._clocks.most_common())
            yield f"the arrivals come in several units ({rows}); check that they are of one clock"
        if self._untimed == self._requests:
            like = [name for name in self._unread if any(word in name.lower() for word in _TIME_WORDS)]
            hint = f"; perhaps {', '.join(like[:3])}, which was not read" if like else ""
            yield (
                f"no arrival times were found (looked for {', '.join(STAMPS[:4])} and others{hint}): give a rate, as "
                "in --set workload.rate_rps=5, or closed-loop clients, --set workload.clients=16"
            )
        if facts.get("latencies_taken_as_ms"):
            yield "latencies without a unit are taken as milliseconds: as seconds they exceed the gaps between turns"
        elif count := facts.get("latencies_longer_than_the_gap"):
            yield f"{count} answers end after the next turn of their session has begun; those have no think time"


def _of_lengths(facts: Mapping[str, Any]) -> Iterator[str]:
    if count := facts.get("prompts_withheld"):
        yield (
            f"{count} prompts hold less than a {WITHHELD:g}th of the tokens that the server counted: their texts "
            "were withheld or replaced. They have the reported lengths and share nothing: this log can't tell hits"
        )
    if count := facts.get("prompts_longer_as_reported"):
        yield (
            f"{count} prompts are more than {FACTOR:g} times as long as their texts by the server's count (images, "
            "templates): what is missing stands at their ends, unshared"
        )
    if count := facts.get("answers_longer_as_reported"):
        yield (
            f"{count} answers are more than {FACTOR:g} times as long as their texts by the server's count: the rest is "
            "taken as reasoning, which later prompts do not repeat"
        )
    for what in ("prompts", "answers"):
        if count := facts.get(f"{what}_shorter_as_reported"):
            yield f"{count} {what} are much longer as texts than the server counted; the texts count"
    if facts.get("answers_unknown"):
        yield f"{facts['answers_unknown']} answers are unknown: the run takes the length that it is told to"
