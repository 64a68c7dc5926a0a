"""Prints what a workload could reuse, and draws it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console

from kvgym.harness.measure.reuse import Reuse
from kvgym.harness.report.console import print_table, say
from kvgym.harness.report.drawing.figures import Curve, growth
from kvgym.harness.report.drawing.pictures import picture

_LEAST = 1e-4


def plain(found: Reuse) -> dict[str, Any]:
    """Return it as plain data."""
    return {
        "prompt_tokens": found.prompt_tokens,
        "reuse_ceiling": found.ceiling,
        "distinct_tokens": found.distinct_tokens,
        "lru_hit_rates": dict(zip(found.capacities.tolist(), found.hit_rates.tolist(), strict=True)),
        "prompts_sharing_at_least": found.depths,
        "busiest_prefixes": [{"tokens": tokens, "requests": requests} for tokens, requests in found.busiest],
    }


def print_reuse(console: Console, found: Reuse) -> None:
    """Print the ceiling, the hit rate over the size of one LRU cache, how deep prompts share, the busiest prefixes."""
    say(
        console,
        f"An endless cache hits {found.ceiling:.1%} of {found.prompt_tokens:,} prompt tokens; it holds "
        f"{found.distinct_tokens:,} in the end.",
        "",
    )
    shown = _steps(found)
    rows = [[f"{size:,}", f"{100 * rate:.1f}", f"{_share(rate, found.ceiling)}"] for size, rate in shown]
    print_table(console, ["one LRU cache of, tokens", "hits %", "of the possible"], rows)
    depths = [[f"{depth:,}", f"{share:.0%}"] for depth, share in found.depths.items()]
    print_table(console, ["shared with an earlier prompt, tokens", "prompts"], depths)
    busy = [[f"{tokens:,}", f"{count:,}", f"{tokens * (count - 1):,}"] for tokens, count in found.busiest]
    print_table(console, ["busiest prefixes, tokens", "requests", "tokens saved"], busy)


def write_picture(path: Path, found: Reuse) -> Path:
    """Write an SVG of the hit rate over the size of one LRU cache."""
    points = [(float(size), float(rate), float(rate), float(rate)) for size, rate in
              zip(found.capacities, np.maximum(found.hit_rates, _LEAST), strict=True)]  # fmt: skip
    path.write_text(picture([growth("hit rate of one LRU cache", "tokens", [Curve("hits", points)])]), encoding="utf-8")
    return path


def _steps(found: Reuse) -> list[tuple[int, float]]:
    """Return the sizes from the last one that hits next to nothing to the first that hits all there is."""
    pairs = list(zip(found.capacities.tolist(), found.hit_rates.tolist(), strict=True))
    begin = max((i for i, (_, rate) in enumerate(pairs) if rate < 0.02 * found.ceiling), default=0)
    return pairs[begin:]


def _share(rate: float, ceiling: float) -> str:
    return f"{rate / ceiling:.0%}" if ceiling else ""
