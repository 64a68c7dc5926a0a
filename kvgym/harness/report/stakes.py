"""One sentence per router says how much the eviction policy mattered, beside what was possible."""

from __future__ import annotations

from collections.abc import Sequence

from kvgym.harness.compare.summary import CellSummary

NEGLIGIBLE = 0.03
"""Hits within so large a share of what was possible (of the best policy's hits, without a bound): no difference."""


def eviction_lines(cells: Sequence[CellSummary]) -> list[str]:
    """Return one sentence per router of a workload and fleet that was run with at least two eviction policies.

    Policies that see the future do not count.
    """
    lines = []
    for routing in dict.fromkeys(cell.labels[2] for cell in cells):
        own = [cell for cell in cells if cell.labels[2] == routing and not cell.oracle]
        rates = [(rate, cell) for cell in own if (rate := cell.mean("hit_rate")) is not None]
        if len(rates) > 1:
            lines.append(f"Under {routing} {_line(sorted(rates, key=lambda pair: pair[0]))}.")
    return lines


def _line(rates: list[tuple[float, CellSummary]]) -> str:
    """Return the sentence on policies sorted by hit rate."""
    (low, worst), (high, best) = rates[0], rates[-1]
    bound, share = best.mean("hit_bound"), best.mean("possible_share")
    limit = "" if bound is None or share is None else f", {share:.0%} of the possible (bound {bound:.1%})"
    if high - low <= NEGLIGIBLE * (high if bound is None else bound):
        every = f"all {len(rates)} hit {low:.1%} to {high:.1%}"
        return f"the choice of the eviction policy does not matter: {every}{limit}"
    return f"eviction matters: {best.labels[3]} hits most, {high:.1%}{limit}; {worst.labels[3]} least, {low:.1%}"
