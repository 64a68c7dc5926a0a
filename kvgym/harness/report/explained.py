"""Shows where prompt tokens went: a waterfall of one run, a table per workload, and what each pair moves."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from rich.console import Console

from kvgym.harness.measure.waterfall import PARTS
from kvgym.harness.report.console import print_table, say

TITLE = "Where the prompt tokens went"
"""Heading of the section."""
HINT = (
    "Share of the prompt tokens of answered requests, the whole run, mean over seeds; the parts sum to 100 %. "
    "Believed: hits that the router expected at the worker that it chose."
)
_HEADINGS = {
    "new": "never seen",
    "late": "seen too late",
    "in_flight": "in flight",
    "routing": "other worker",
    "eviction": "evicted",
    "gone": "evicted elsewhere",
    "rounding": "rounding",
    "lost": "failed worker",
    "hit": "hit",
    "believed": "believed",
}
DEFINITIONS = {_HEADINGS[name]: text for name, text in PARTS.items()}
"""Heading of a column -> what it is."""
_ALWAYS = {"new", "routing", "eviction", "hit"}
_SEEN = 0.0005
"""Share from which a part has a column, and its change a word."""
_BAR = 30
Spread = tuple[float | None, float | None, float | None]


class Explained(NamedTuple):
    """A pair, and the shares of `PARTS` and ``believed``: (mean, smallest, largest) over seeds; empty: not known."""

    pair: tuple[str, str]  # (routing, eviction)
    shares: Mapping[str, Spread]


def explained_rows(cells: Sequence[Explained]) -> tuple[list[str], list[list[str]]] | None:
    """Return header and rows, a column for each part that there is; None where nothing is known."""
    known = [cell for cell in cells if cell.shares]
    if not known:
        return None
    columns = [name for name in _HEADINGS if name in _ALWAYS or any(_mean(cell, name) >= _SEEN for cell in known)]
    header = ["routing", "eviction", *(f"{_HEADINGS[name]} %" for name in columns)]
    return header, [[*cell.pair, *(_percent(cell.shares.get(name)) for name in columns)] for cell in cells]


def moved_lines(cells: Sequence[Explained], baseline: tuple[str, str]) -> Iterator[str]:
    """Yield one sentence per pair beside the baseline: which parts are larger or smaller with it, in points."""
    base = next((cell for cell in cells if cell.pair == baseline and cell.shares), None)
    for cell in cells if base else ():
        if cell.pair == baseline or not cell.shares:
            continue
        assert base is not None
        moves = {name: _mean(cell, name) - _mean(base, name) for name in PARTS}
        order = sorted(moves, key=lambda name: -abs(moves[name]))
        said = [f"{_HEADINGS[name]} {100 * moves[name]:+.1f}" for name in order if abs(moves[name]) >= _SEEN]
        yield f"{' + '.join(cell.pair)} against {' + '.join(baseline)}, points: {', '.join(said) or 'nothing moves'}."


def print_explained(
    console: Console, title: str, cells: Sequence[Explained], baseline: tuple[str, str] | None = None
) -> None:
    """Print the table of one workload and fleet, and what moves against a baseline; nothing where nothing is known."""
    if rows := explained_rows(cells):
        print_table(console, *rows, title=f"\n{TITLE}: {title}", names=2)
        if baseline is not None:
            say(console, *moved_lines(cells, baseline), indent=2)


def print_waterfall(console: Console, tokens: Mapping[str, int]) -> None:
    """Print the waterfall of one run: each part in tokens, its share, and what is left after it."""
    total = left = sum(tokens[name] for name in PARTS)
    rows = [["prompt tokens", f"{total:,}", "100.00", "█" * _BAR]]
    for name, text in PARTS.items():
        share = tokens[name] / max(total, 1)
        after = left - tokens[name]
        first, last = (round(_BAR * value / max(total, 1)) for value in (after, left))
        begin = 0 if name == "hit" else first
        rows.append([text, f"{tokens[name]:,}", f"{100 * share:.2f}", " " * begin + "█" * (last - begin)])
        left = after
    if "believed" in tokens:
        rows.append(
            ["believed by the router", f"{tokens['believed']:,}", f"{100 * tokens['believed'] / max(total, 1):.2f}", ""]
        )
    print_table(console, ["part of the prompt tokens", "tokens", "%", ""], rows)


def _mean(cell: Explained, name: str) -> float:
    return cell.shares.get(name, (None,))[0] or 0.0


def _percent(spread: Spread | None) -> str:
    mean, low, high = spread or (None, None, None)
    if mean is None or low is None or high is None:
        return "-"
    text = f"{100 * mean:.2f}"
    return text if low == high else f"{text} [{100 * low:.2f}-{100 * high:.2f}]"
