"""Shows a run while it happens, for `kvgym watch`: live in a terminal, as a few printed pictures elsewhere."""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Mapping
from typing import Any

from rich.console import Console
from rich.live import Live
from rich.text import Text

from kvgym.backends.base import Backend
from kvgym.config.loader import load_config, mistakes_in
from kvgym.envs.viewer.frame import Frame, make_frame
from kvgym.envs.viewer.text import LINES, WIDTH, draw_text, totals
from kvgym.errors import ConfigError, did_you_mean
from kvgym.harness.compare.cell import Cell
from kvgym.harness.compare.grid import load_compare
from kvgym.harness.compare.overrides import override_compare
from kvgym.harness.compare.plan import make_plan
from kvgym.harness.compare.run import make_controller, run
from kvgym.harness.tools.single import Measure, outcome, single_cell
from kvgym.types import Decision

REDRAW_S = 0.1
"""Wall seconds between two pictures in a terminal."""
PICTURES = 10
"""Printed pictures of a run without a terminal."""


def pick_cell(
    config: str | None, chosen: Mapping[str, str | None], overrides: Iterable[str]
) -> tuple[Cell, Measure, int]:
    """Return the cell to be watched, how it is measured, and the default seed.

    Args:
        config: comparison, by name or path; its first cell that fits `chosen` is taken. None: `chosen` are the names
            of presets and plug-ins that make a cell.
        chosen: label by axis (workload, cluster, routing, eviction); None: any.
        overrides: ``--set`` settings, as for `kvgym compare` or `kvgym run`.

    Raises:
        KVGymError: a name, a label or a setting is not acceptable.
    """
    if config is None:
        (cell, measure), seed = single_cell(**chosen, overrides=overrides), 0  # type: ignore[arg-type]
    else:
        overrides = list(overrides)
        data = override_compare(load_config("compare", config), overrides)
        with mistakes_in(config, overrides):
            grid = load_compare(data)
            cells = list(make_plan(grid).cells)
        for axis, label in chosen.items():
            cells = _fitting(cells, axis, label)
        cell, measure, seed = cells[0], Measure(grid.warmup_s, grid.slo), grid.seed_list[0]
    make_controller(cell)  # wrong options are reported before anything is drawn
    return cell, measure, seed


def _fitting(cells: list[Cell], axis: str, label: str | None) -> list[Cell]:
    """Return the cells that carry `label` on the axis.

    Raises:
        ConfigError: there is none.
    """
    axes = ("workload", "cluster", "routing", "eviction")
    labels = [cell.labels[axes.index(axis)] for cell in cells]
    if label is None:
        return cells
    if label not in labels:
        known = list(dict.fromkeys(labels))
        hint = did_you_mean(label, known) or ";"
        raise ConfigError(f"no cell with {axis} {label!r}{hint} there are: {', '.join(known)}")
    return [cell for cell, name in zip(cells, labels, strict=True) if name == label]


class Watch:
    """One run that is looked at.

    Args:
        cell: what runs.
        measure: what its metrics are measured by.
        seed: seed of the episode.
        console: where it is drawn.
        speed: simulated seconds per wall second in a terminal; 0: as fast as it goes.
        every: decisions between two pictures without a terminal; 0: `PICTURES` in all.

    Raises:
        ConfigError: `speed` is no finite number >= 0.
    """

    def __init__(
        self, cell: Cell, measure: Measure, seed: int, console: Console, speed: float = 5.0, every: int = 0
    ) -> None:
        if not 0 <= speed < math.inf:
            raise ConfigError(f"speed must be a finite number >= 0 (0: as fast as it goes), got {speed}")
        self._cell, self._measure, self._seed, self._console = cell, measure, seed, console
        self._speed, self._every = speed, every
        self._last: tuple[Backend, Decision, int] | None = None
        self._start_s = self._drawn_s = 0.0
        self._seen = 0

    def run(self) -> dict[str, Any]:
        """Run to the end while drawing; return the same as `kvgym run`."""
        if self._console.is_terminal:
            with Live(console=self._console, auto_refresh=False) as live:
                result = run(self._cell, self._seed, lambda *route: self._pace(live, *route))
                live.update(self._picture(), refresh=True)
        else:
            result = run(self._cell, self._seed, self._print_some)
            self._print()
        return outcome(self._cell, self._seed, result, self._measure)

    @property
    def summary(self) -> str:
        """The time and the totals so far, in one line."""
        return "nothing routed yet" if self._last is None else "  ".join(totals(self._frame()))

    def _frame(self) -> Frame:
        assert self._last is not None, "there is nothing to be seen before the first decision"
        backend, decision, worker = self._last
        return make_frame(backend, None, decision, worker)

    def _picture(self) -> Text:
        """Return the present state under a title."""
        title = Text(f"{'  '.join(self._cell.labels)}  seed {self._seed}\n", "bold", no_wrap=True, overflow="crop")
        # Title, totals, decision, column heads and what stands below the picture need seven lines of a terminal.
        size = (self._console.width, max(self._console.height - 7, 4)) if self._console.is_terminal else (WIDTH, LINES)
        return title.append_text(draw_text(self._frame(), *size))

    def _pace(self, live: Live, backend: Backend, decision: Decision, worker: int) -> None:
        """Draw now and then, and wait until the wall clock has caught up with the simulated one."""
        now_s = time.monotonic()
        if self._last is None:
            self._start_s = now_s
        self._last = backend, decision, worker
        ahead_s = decision.time_s / self._speed - (now_s - self._start_s) if self._speed else 0.0
        if max(now_s - self._drawn_s, ahead_s) >= REDRAW_S:
            self._drawn_s = now_s
            live.update(self._picture(), refresh=True)
        if ahead_s > 0:
            time.sleep(ahead_s)

    def _print_some(self, backend: Backend, decision: Decision, worker: int) -> None:
        """Print a picture after every so many decisions."""
        self._last = backend, decision, worker
        self._every = self._every or max(backend.snapshot(0).requests // PICTURES, 1)
        self._seen += 1
        if self._seen % self._every == 0:
            self._print()

    def _print(self) -> None:
        self._console.print(self._picture(), end="\n\n", soft_wrap=True)
