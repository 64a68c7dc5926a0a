"""Draws a frame as text: one line per worker, or several workers in a line where there are many."""

from __future__ import annotations

from rich.text import Text

from kvgym.envs.viewer.frame import Frame
from kvgym.envs.viewer.palette import colour, letter

WIDTH = 100
"""Characters of a line."""
LINES = 25
"""With more workers than this they stand side by side."""
_CELL = 25
"""Characters of a worker that shares its line."""
_DOWN, _CHOSEN, _QUIET = "red", "bold", "dim"


def draw_text(frame: Frame, width: int = WIDTH, lines: int = LINES) -> Text:
    """Return the picture, `width` characters wide and about `lines` lines high; plain text is its ``plain``.

    A line of letters shows a worker's KV pool: a letter for each prefix, ``+`` for prefixes too small for a letter,
    ``#`` for what running requests hold, ``.`` for what is free.
    """
    workers, columns = len(frame.down), max(width // _CELL, 1)
    body = [_line(frame, w, width) for w in range(workers)] if workers <= lines else _grid(frame, columns, lines)
    if workers <= lines:
        body.insert(0, Text("   worker  queued  running  in flight    KV  cache by prefix", _QUIET))
    return Text("\n", no_wrap=True, overflow="crop").join([*_headline(frame, width), _decision(frame), *body])


def _headline(frame: Frame, width: int) -> list[Text]:
    """Return the totals in as many lines as they need."""
    lines = [""]
    for total in totals(frame):
        if lines[-1] and len(lines[-1]) + 2 + len(total) > width:
            lines.append("")
        lines[-1] += f"{'  ' if lines[-1] else ''}{total}"
    return [Text(line) for line in lines]


def totals(frame: Frame) -> list[str]:
    """Return the time and the totals, each with its name."""
    fleet = frame.fleet
    return [
        f"t {frame.time_s:.2f} s",
        f"routed {fleet.routed}/{fleet.requests}",
        f"done {frame.done}",
        *([f"lost {frame.lost}"] if frame.lost else []),
        f"in flight {int(fleet.inflight.sum())}",
        f"hits {shown(frame.hit_frac, '.1%')}",
        f"P50 {shown(frame.p50_s, '.2f')} s",
        f"P95 {shown(frame.p95_s, '.2f')} s",
    ]


def request_line(frame: Frame) -> str:
    """Return what the last decision was about."""
    last = frame.last
    if last is None:
        return "nothing routed yet"
    known = "" if last.hit_tokens is None else f", {int(last.hit_tokens[frame.worker]):,} of them expected there"
    return f"request {last.request} with {last.prompt_tokens:,} tokens{known}, to worker {frame.worker}"


def shown(value: float | None, form: str) -> str:
    """Return a number in the given format, "-" for None."""
    return "-" if value is None else format(value, form)


def _decision(frame: Frame) -> Text:
    line = Text()
    if frame.last is not None:
        line.append(letter(frame.fleet.prefix), _ink(frame.fleet.prefix)).append(" ")
    return line.append(request_line(frame))


def _line(frame: Frame, worker: int, width: int) -> Text:
    fleet, chosen = frame.fleet, worker == frame.worker
    counts = f"{fleet.queued[worker]:>8}{fleet.running[worker]:>9}{fleet.inflight[worker]:>11}"
    line = Text(f" {'>' if chosen else ' '} w{worker:<5}", _CHOSEN if chosen else "")
    line.append(f"{counts}{_used(frame, worker):>6}  ")
    return line.append_text(_bar(frame, worker, max(width - len(line), 8)))


def _grid(frame: Frame, columns: int, lines: int) -> list[Text]:
    """Return rows of small cells ``>w12  3+8  83% aabb..``: queued + running, KV use, cache."""
    workers = len(frame.down)
    shown_workers = min(workers, columns * lines)
    rows = [Text("  worker, queued+running, KV use, cache by prefix", _QUIET)]
    height = -(-shown_workers // columns)
    for row in range(height):
        line = Text()
        for worker in range(row, shown_workers, height):
            line.append_text(_cell(frame, worker))
        rows.append(line)
    if workers > shown_workers:
        rows.append(Text(f"  and {workers - shown_workers} more workers", _QUIET))
    return rows


def _cell(frame: Frame, worker: int) -> Text:
    chosen, load = worker == frame.worker, f"{frame.fleet.queued[worker]}+{frame.fleet.running[worker]}"
    cell = Text(f"{'>' if chosen else ' '}w{worker:<3} {load:>5} ", _CHOSEN if chosen else "")
    cell.append(f"{_used(frame, worker):>4} ")
    cell.append_text(_bar(frame, worker, max(_CELL - 1 - len(cell), 1))).append(" ")
    return cell


def _used(frame: Frame, worker: int) -> str:
    return "down" if frame.down[worker] else f"{frame.used_frac[worker]:.0%}"


def _bar(frame: Frame, worker: int, width: int) -> Text:
    bar, end = Text(), 0
    for start, stop, kind in frame.cache_parts(worker, width):
        bar.append(letter(kind) * (stop - start), _ink(kind))
        end = stop
    return bar.append("." * (width - end), _DOWN if frame.down[worker] else _QUIET)


def _ink(kind: int) -> str:
    red, green, blue = colour(kind)
    return f"{'white' if red + green + blue < 300 else 'black'} on #{red:02x}{green:02x}{blue:02x}"
