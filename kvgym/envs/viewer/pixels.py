"""Draws a frame as an image: load and cache bars of each worker, in as many columns as the fleet needs."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from kvgym.envs.viewer.frame import OTHER, PRIVATE, Frame
from kvgym.envs.viewer.palette import Colour, colour
from kvgym.envs.viewer.text import request_line, totals
from kvgym.errors import MissingDependencyError

if TYPE_CHECKING:
    from PIL.Image import Image
    from PIL.ImageDraw import ImageDraw

WIDTH, HEIGHT = 960, 540
"""Pixels of an image, whatever the fleet: a video needs one size, and even numbers."""
_TOP, _EDGE = 84, 16
_ROWS = 14
"""Workers in a column before a further column is begun, while there is room for one."""
_LEAST = 150
"""Pixels that a column needs; narrower ones are made only where rows would be thinner than 4 pixels."""
_MOST = 2000
"""Workers that are drawn."""
_WIDE, _READABLE = 400, 8
"""Pixels: a column of this width has room for numbers, a line of this height for letters."""
_PAPER, _INK, _QUIET, _TRACK = (252, 252, 250), (28, 32, 38), (110, 116, 124), (232, 233, 235)
_RUNNING, _QUEUED, _CHOSEN, _DOWN = (74, 144, 98), (226, 138, 52), (255, 236, 170), (200, 60, 60)


class _Cell(NamedTuple):
    """Where a worker is drawn, pixels."""

    x: int
    y: int
    width: int
    height: int


def require_pillow() -> None:
    """Check that images can be drawn.

    Raises:
        MissingDependencyError: pillow is not installed.
    """
    try:
        import PIL.ImageDraw  # noqa: F401
    except ImportError as error:
        raise MissingDependencyError("rgb_array frames need pillow; pip install 'kvgym[render]'") from error


def draw_pixels(frame: Frame) -> np.ndarray:
    """Return the picture, uint8 (HEIGHT, WIDTH, 3)."""
    from PIL import Image, ImageDraw

    image = Image.new("RGB", (WIDTH, HEIGHT), _PAPER)
    draw = ImageDraw.Draw(image)
    _header(draw, frame)
    for worker, cell in enumerate(_cells(min(len(frame.down), _MOST))):
        _worker(draw, frame, worker, cell)
    return np.array(image)


def _cells(workers: int) -> list[_Cell]:
    """Return where each worker goes: down the first column, then down the next."""
    columns = max(min(-(-workers // _ROWS), WIDTH // _LEAST), -(-workers // ((HEIGHT - _TOP - _EDGE) // 4)))
    rows = -(-workers // columns)
    width, height = (WIDTH - 2 * _EDGE) / columns, min((HEIGHT - _TOP - _EDGE) / rows, 110.0)
    cells = []
    for worker in range(workers):
        column, row = divmod(worker, rows)
        top, bottom = int(_TOP + row * height), int(_TOP + (row + 1) * height)
        gap = min(6, (bottom - top) // 4)
        cells.append(_Cell(int(_EDGE + column * width), top, int(width) - 8, max(bottom - top - gap, 1)))
    return cells


def _header(draw: ImageDraw, frame: Frame) -> None:
    x = _EDGE
    for text in totals(frame):
        x += _write(draw, x, 10, text, _INK, 17) + 14
    if frame.last is not None:
        draw.rectangle((_EDGE, 36, _EDGE + 13, 49), colour(frame.fleet.prefix))
    _write(draw, _EDGE + 20, 34, request_line(frame), _INK, 15)
    x = _EDGE
    load = ((_RUNNING, "running"), (_QUEUED, f"queued (bar: {frame.load_scale} requests)"))
    prefix = (colour(0), "cached, a colour per prefix (marked: this request's)")
    cached = (prefix, (colour(OTHER), "small prefixes"), (colour(PRIVATE), "running requests"), (_TRACK, "free"))
    for swatch, name in load + cached:
        draw.rectangle((x, 63, x + 9, 72), swatch)
        x += _write(draw, x + 14, 60, name, _QUIET, 12) + 28
    if len(frame.down) > _MOST:
        _write(draw, WIDTH - 220, 34, f"the first {_MOST:,} of {len(frame.down):,} workers", _INK, 15)


def _worker(draw: ImageDraw, frame: Frame, worker: int, cell: _Cell) -> None:
    """Draw a worker's name, its load bar above its cache bar, and, where there is room, its numbers."""
    x, y, width, height = cell
    wide, size = width >= _WIDE, min(15, max(height - 1, 1))
    middle, named = y + (height - size) // 2 - 2, size >= _READABLE
    if worker == frame.worker:
        draw.rectangle((x - 4, y - 2, x + width + 3, y + height + 1), _CHOSEN)
    if named:
        _write(draw, x, middle, f"w{worker}", _DOWN if frame.down[worker] else _INK, size)
    left, right = x + (44 if named else 0), x + width - (344 if wide else 0)
    load_height = max(height // 3, 1)
    _load_bar(draw, frame, worker, _Cell(left, y, right - left, load_height))
    _cache_bar(draw, frame, worker, _Cell(left, y + load_height, right - left, height - load_height))
    if wide and named:
        for offset, text in zip((12, 84, 170, 256), _numbers(frame, worker), strict=True):
            _write(draw, right + offset, middle, text, _QUIET, size)


def _numbers(frame: Frame, worker: int) -> tuple[str, ...]:
    fleet = frame.fleet
    used = "down" if frame.down[worker] else f"KV {frame.used_frac[worker]:.0%}"
    counts = {"running": fleet.running, "queued": fleet.queued, "in flight": fleet.inflight}
    return used, *(f"{values[worker]} {name}" for name, values in counts.items())


def _load_bar(draw: ImageDraw, frame: Frame, worker: int, cell: _Cell) -> None:
    """Draw the running requests and behind them the queued ones."""
    unit = cell.width / frame.load_scale
    running, queued = int(frame.fleet.running[worker]), int(frame.fleet.queued[worker])
    _box(draw, cell, 0, cell.width, _TRACK)
    _box(draw, cell, 0, round(unit * running), _RUNNING)
    _box(draw, cell, round(unit * running), round(unit * (running + queued)), _QUEUED)


def _cache_bar(draw: ImageDraw, frame: Frame, worker: int, cell: _Cell) -> None:
    """Draw what the KV pool holds; a wedge marks the prefix of the last request, a line a worker that is down."""
    _box(draw, cell, 0, cell.width, _TRACK)
    mark = None
    for part in frame.cache_parts(worker, cell.width):
        _box(draw, cell, part.start, part.stop, colour(part.kind))
        mark = part if part.kind == frame.fleet.prefix else mark
    if mark is not None and frame.last is not None and cell.height >= _READABLE:
        middle, size = cell.x + (mark.start + mark.stop) // 2, min(cell.height // 3, 8)
        draw.polygon([(middle - size, cell.y - 1), (middle + size, cell.y - 1), (middle, cell.y + size)], _INK, _PAPER)
    if frame.down[worker]:
        _box(draw, cell._replace(height=2, y=cell.y + cell.height // 2), 0, cell.width, _DOWN)


def _box(draw: ImageDraw, cell: _Cell, start: int, stop: int, fill: Colour) -> None:
    """Fill part of a bar, from `start` to before `stop` pixels of it."""
    if stop > start:
        draw.rectangle((cell.x + start, cell.y, cell.x + stop - 1, cell.y + cell.height - 1), fill)


def _write(draw: ImageDraw, x: int, y: int, text: str, ink: Colour, size: int) -> int:
    """Write a line of text; return its width in pixels."""
    stamp = _stamp(text, size)
    draw.bitmap((x, y), stamp, ink)
    return stamp.width


@lru_cache(4096)
def _stamp(text: str, size: int) -> Image:
    """Return a line of text as a mask in Pillow's own typeface, the same on every machine.

    Drawing the letters takes longer than all bars together, and most texts come again in the next frame.
    """
    from PIL import Image, ImageDraw, ImageFont

    font = ImageFont.load_default(size)
    _, _, right, bottom = font.getbbox(text)
    stamp = Image.new("L", (int(right) + 1, int(bottom) + 1))
    ImageDraw.Draw(stamp).text((0, 0), text, 255, font)
    return stamp
